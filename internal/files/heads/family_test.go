package heads

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A config.json without the fields gets the defaults of transformers, for every model type that has
// a scale or a cap by default. The file has the defaults of its configurations.
func TestDefaultsAreThoseOfTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "wild", "families.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Types map[string]struct {
			Text   string
			Width  float64
			Values map[string]any
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Types) < 40 {
		t.Fatalf("found %d types", len(golden.Types))
	}
	met := map[*family]bool{}
	for name, x := range golden.Types {
		number := func(field string, otherwise float64) float64 {
			if v, ok := x.Values[field].(float64); ok {
				return v
			}
			return otherwise
		}
		state, logit := 1/number("logits_mup_width_multiplier", 1), number("logit_scale", 1)*number("lm_head_multiplier", 1)*number("output_multiplier", 1)
		switch by := number("logits_scaling", 1); {
		case strings.HasPrefix(x.Text, "minicpm"): // modeling_minicpm3.py: hidden_states / logits_scaling
			state /= by
		case strings.HasPrefix(x.Text, "hyperclovax"):
			logit *= by
		default:
			logit /= by
		}
		if x.Values["scale_decoder_outputs"] == true {
			state /= math.Sqrt(x.Width)
		}
		soft := number("final_logit_softcapping", number("logits_soft_cap", 0))
		text := fmt.Sprintf(`{"model_type":%q,"hidden_size":%v,"d_model":%v}`, name, x.Width, x.Width)
		if x.Text != name {
			text = fmt.Sprintf(`{"model_type":%q,"text_config":{"model_type":%q,"hidden_size":%v,"d_model":%v}}`, name, x.Text, x.Width, x.Width)
		}
		c, err := parseConfig([]byte(text), "config.json")
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.finish()
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-12*b }
		if err != nil || !near(f.state, state) || !near(f.scale, logit) || f.cap != soft {
			t.Errorf("%s: found %+v, %v; want a state by %v, a logit by %v, the cap %v", name, f, err, state, logit, soft)
		}
		met[familyOf(c.types...)] = true
	}
	for i := range families { // models without code in transformers, or without a default that is a number
		f := &families[i]
		if own := slices.Contains([]string{"minicpm", "minicpm*", "phi3small"}, f.types); !met[f] && !own {
			t.Errorf("%s: found no type of it", f.name)
		}
	}
}

// docs/head.md has the rows of the tables, in their order.
func TestDocumentHasTheFamilies(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "head.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, f := range append(slices.Clone(families), everyModel) {
		if f.types != "minicpm*" { // as MiniCPM
			rows = append(rows, f.row())
		}
	}
	for _, f := range append(slices.Clone(ggufFamilies), everyGGUF) {
		rows = append(rows, f.row())
	}
	text := string(data)
	for _, row := range rows {
		_, behind, found := strings.Cut(text, row+"\n")
		if !found {
			t.Errorf("found no row, expected it here:\n%s", row)
			continue
		}
		text = behind
	}
}

// row is the family as the table in docs/head.md has it.
func (f *family) row() string {
	show := func(list []factor) string {
		var parts []string
		for _, x := range list {
			if x.shows != "" {
				parts = append(parts, x.shows)
			}
		}
		return strings.Join(parts, "; ")
	}
	field := f.field
	if field == "" {
		field = "final_logit_softcapping"
	}
	soft := ""
	switch {
	case f.cap != 0:
		soft = fmt.Sprintf("%s, %v by default", field, f.cap)
	case f.types == "":
		soft = field + ", if the file has it"
	}
	return tableRow(f.name, show(f.state), show(f.logit), soft)
}

func (f *ggufFamily) row() string {
	soft := ""
	switch {
	case f.always:
		soft = fmt.Sprintf("%v, always", f.cap)
	case f.cap != 0:
		soft = fmt.Sprintf("final_logit_softcapping, %v by default", f.cap)
	case f.may:
		soft = "final_logit_softcapping, if the file has it"
	}
	return tableRow(f.name, f.shows, soft)
}

func tableRow(cells ...string) string {
	row := "|"
	for _, cell := range cells {
		row += strings.TrimRight(" "+cell, " ") + " |"
	}
	return row
}
