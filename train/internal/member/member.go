// Package member adds what is found out about a screen to its record.
package member

import (
	"bytes"
	"encoding/json"
)

// Set returns the record, a JSON object, with a member of that name in it, last and
// once. All else stands as it stood.
func Set(record json.RawMessage, name string, content any) (json.RawMessage, error) {
	value, err := json.Marshal(content)
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
