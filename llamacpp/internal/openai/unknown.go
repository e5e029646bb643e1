package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// otherNames are names of other servers for fields.
var otherNames = map[string]string{"n_predict": "max_tokens", "num_predict": "max_tokens", "max_new_tokens": "max_tokens", "max_length": "max_tokens",
	"repetition_penalty": "repeat_penalty", "rep_pen": "repeat_penalty", "temp": "temperature", "stop_sequences": "stop", "stopping_strings": "stop",
	"ignore_eos_token": "ignore_eos", "allowed_token_ids": "allowed_tokens", "input": "prompt"}

// others are fields of other servers, which no path here reads, that change an answer there, each with
// the values that change nothing.
var others = map[string][]string{
	// OpenAI.
	"audio": nil, "functions": nil, "tools": nil, "instructions": nil, "web_search_options": nil, "max_output_tokens": nil,
	// llama-server.
	"grammar": nil, "grammar_lazy": {"false"}, "json_schema": nil, "typical_p": {"1"}, "typical": {"1"}, "mirostat": {"0"}, "tfs_z": {"1"}, "top_n_sigma": {"-1", "0"}, "dynatemp_range": {"0"},
	"xtc_probability": {"0"}, "dry_multiplier": {"0"}, "samplers": nil, "n_keep": {"0"}, "n_probs": {"0"}, "min_keep": {"0"}, "penalize_nl": {"false"},
	"t_max_predict_ms": {"0", "-1"}, "n_indent": {"0"}, "image_data": nil, "lora": nil, "input_prefix": nil, "input_suffix": nil, "input_extra": nil,
	"return_tokens": {"false"}, "response_fields": nil, "post_sampling_probs": {"false"}, "chat_template_kwargs": nil, "reasoning_budget": {"-1"},
	// vLLM.
	"top_a": {"0"}, "min_tokens": {"0"}, "stop_token_ids": nil, "bad_words": nil, "include_stop_str_in_output": {"false"}, "skip_special_tokens": {"true"},
	"spaces_between_special_tokens": {"true"}, "prompt_logprobs": nil, "use_beam_search": {"false"}, "length_penalty": {"1"}, "guided_json": nil, "guided_regex": nil,
	"guided_choice": nil, "guided_grammar": nil, "structured_outputs": nil, "add_generation_prompt": {"true"}, "continue_final_message": {"false"},
	"add_special_tokens": nil, "chat_template": nil, "documents": nil, "truncate_prompt_tokens": nil, "prompt_embeds": nil, "return_token_ids": {"false"},
	"bad_words_ids": nil, "regex": nil, "ebnf": nil, "no_repeat_ngram_size": {"0"},
}

// idle are fields on which no text depends: a name that is like one of these is not refused.
var idle = []string{"model", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"prediction", "parallel_tool_calls", "reasoning_effort", "verbosity"}

// known looks at the fields that no path reads. It refuses the first, by its name, whose client believes
// that it changes the answer: a field of another server, and a name that is almost the one of a field that
// is read. It notes all others for the header of the answer, or refuses them too if strict.
func (f *fields) known(names []string, strict bool) {
	for _, name := range slices.Sorted(maps.Keys(f.of)) {
		if slices.Contains(names, name) || string(bytes.TrimSpace(f.of[name])) == "null" {
			continue
		}
		expected, meant := "one that it does", f.meant(name, names)
		neutral, changes := others[name]
		switch {
		case strict:
		case slices.ContainsFunc(neutral, func(x string) bool { return equals(f.of[name], x) }),
			meant == "" && !(changes && (neutral != nil || f.has(name))):
			f.ignored = append(f.ignored, name)
			continue
		}
		if neutral != nil {
			expected = strings.Join(neutral, " or ") + ", or none"
		}
		if meant != "" {
			meant = ": " + meant + "?"
		}
		f.fail(name, "found a field that this server does not know, expected %s%s", expected, meant)
		if f.failed.Param != nil && *f.failed.Param == name {
			f.failed.code("unknown_field")
		}
		return
	}
}

// meant is the field that the name of an unknown one means, "" if there is none: by the name that another
// server has for it, or if one or two letters of more than twice as many, in any case, lead to it.
func (f *fields) meant(name string, names []string) string {
	if meant := otherNames[name]; meant != "" {
		return meant
	}
	meant, best := "", min(3, (len(name)+1)/2)
	for _, other := range names {
		if slices.Contains(idle, other) {
			continue
		}
		if d := changes(strings.ToLower(name), other, best); d < best {
			best, meant = d, other
		}
	}
	return meant
}

// equals reports whether a value is the same as another, by their numbers if they are numbers.
func equals(raw json.RawMessage, want string) bool {
	found := string(bytes.TrimSpace(raw))
	if x, err := strconv.ParseFloat(want, 64); err == nil {
		y, err := strconv.ParseFloat(found, 64)
		return err == nil && x == y
	}
	return found == want
}

// ignoredHeader names the fields of a request that nothing has read.
const ignoredHeader = "X-L2S-Ignored"

// most of such names are told, of so many letters.
const (
	mostIgnored = 20
	mostLetters = 40
)

// tell names the fields that nothing has read in the header of the answer, before it begins. Names may
// be of any letters: those that a header cannot have are replaced.
func (f *fields) tell(w http.ResponseWriter) {
	var list []string
	for _, name := range f.ignored[:min(len(f.ignored), mostIgnored)] {
		name = strings.Map(func(r rune) rune {
			if r > ' ' && r < 0x7f && r != ',' {
				return r
			}
			return '?'
		}, name)
		list = append(list, name[:min(len(name), mostLetters)])
	}
	if len(f.ignored) > mostIgnored {
		list = append(list, "...")
	}
	if list != nil {
		w.Header().Set(ignoredHeader, strings.Join(list, ", "))
	}
}

// changes is the number of letters to add, leave out or replace that lead from one name to another, or
// most if it is not less.
func changes(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			diagonal := before
			if a[i] != b[j] {
				diagonal++
			}
			before = row[j+1]
			row[j+1] = min(diagonal, row[j]+1, before+1)
		}
	}
	return min(row[len(b)], most)
}
