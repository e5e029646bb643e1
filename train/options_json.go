package train

import (
	"encoding/json"
	"reflect"
)

// option is one member of the JSON object that options are in a record.
type option struct {
	name     string
	value    any  // a pointer to it
	optional bool // no member if it is 0 or empty
}

// list has the options that go into a record, in the order that they have
// there: equal runs give equal bytes, and an option that is new comes where it
// is no member if it is not used.
func (o *Options) list() []option {
	return []option{
		{"clusters", &o.Clusters, false},
		{"groups", &o.Groups, true},
		{"overlap", &o.Overlap, true},
		{"budget", &o.Budget, false},
		{"k", &o.K, false},
		{"lambda", &o.Lambda, false},
		{"smoothing", &o.Smoothing, true},
		{"spread", &o.Spread, true},
		{"geometry", &o.Geometry, true},
		{"probe_share", &o.ProbeShare, true},
		{"pair_weight", &o.PairWeight, true},
		{"shells", &o.Shells, true},
		{"largest", &o.Largest, true},
		{"tail", &o.Tail, true},
		{"measure", &o.Measure, true},
		{"gamma", &o.Gamma, false},
		{"multiplier", &o.Multiplier, false},
		{"iterations", &o.Iterations, false},
		{"kmeans_only", &o.KMeansOnly, false},
		{"estimator", &o.Estimator, false},
		{"seed", &o.Seed, false},
		{"always", &o.Always, true},
		{"kmeans_iterations", &o.KMeansIterations, false},
		{"kmeans_batch", &o.KMeansBatch, true},
		{"held_out", &o.HeldOut, false},
		{"patience", &o.Patience, true},
		{"epoch_fraction", &o.EpochFraction, false},
		{"batch_size", &o.BatchSize, false},
		{"learning_rate", &o.LearningRate, false},
		{"optimizer", &o.Optimizer, false},
		{"momentum", &o.Momentum, false},
		{"confidence", &o.Confidence, false},
	}
}

// MarshalJSON returns the options as a record has them: one object, without
// TailContexts, Labels, Checkpoint, Threads and Progress.
func (o Options) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for _, x := range o.list() {
		if v := reflect.ValueOf(x.value).Elem(); x.optional && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), x.name...), '"', ':'), value...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote. Options that are not there stay as
// they are, and members that are no options play no part.
func (o *Options) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	for _, x := range o.list() {
		if value, ok := members[x.name]; ok {
			if err := json.Unmarshal(value, x.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// recorded is the form of the options that goes into a record: the ids in
// order, so that the order they were given in leaves no trace in the file, and
// nothing that plays no part.
func (o *Options) recorded() Options {
	r := *o
	r.Always = o.always()
	if r.ProbeShare == 0 {
		r.PairWeight = 0 // it plays no part
	}
	r.TailContexts, r.Labels, r.Checkpoint, r.Threads, r.Progress = nil, nil, "", 0, nil
	return r
}
