package calibrate

import (
	"bytes"
	"encoding/json"
)

// withCalibration returns the record, a JSON object, with the calibration in it,
// last and once. All else stands as it stood.
func withCalibration(record json.RawMessage, c *Calibration) (json.RawMessage, error) {
	const name = "calibration"
	value, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(record))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte("{")
	add := func(name string, value json.RawMessage) error {
		key, err := json.Marshal(name)
		out = append(append(append(append(out, key...), ':'), value...), ',')
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if key != name {
			if err := add(key.(string), value); err != nil {
				return nil, err
			}
		}
	}
	if err := add(name, value); err != nil {
		return nil, err
	}
	out[len(out)-1] = '}'
	return out, nil
}
