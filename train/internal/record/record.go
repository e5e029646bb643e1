// Package record checks the options of a run, and adds facts about a screen to its record.
package record

import "encoding/json"

// Set returns the record, a JSON object, with a member of that name in it.
func Set(record json.RawMessage, name string, content any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(record, &members); err != nil {
		return nil, err
	}
	value, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	members[name] = value
	return json.Marshal(members)
}
