package points

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

// Here returns the machine that the program runs on.
func Here() Machine {
	return Machine{CPU: cpuid.CPU.BrandName, OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version()}
}

// Translation is Table 2 of the paper, and its table of translations, on one translation model: the
// effect of a method on BLEU, and the time of its softmax layer in beam search. Command translate
// writes it.
type Translation struct {
	Schema  int     `json:"schema"`
	Machine Machine `json:"machine"`
	// Level is the level of package kernels.
	Level string `json:"level"`
	Layer Layer  `json:"layer"`
	Seed  uint64 `json:"seed"`
	// Alpha and MaxLen are options of the beam search.
	Alpha  float64 `json:"alpha"`
	MaxLen int     `json:"max_len"`
	// Sentences is the number of sentences translated, and TimedSentences the
	// number of sentences whose contexts were timed.
	Sentences      int `json:"sentences"`
	TimedSentences int `json:"timed_sentences"`
	// References and Own are the numbers of contexts to learn from: under teacher forcing and of
	// the model's own greedy decoding. Calibration is the number of contexts of both kinds, from
	// other sentences, that choose a screen.
	References  int `json:"reference_contexts"`
	Own         int `json:"own_contexts"`
	Calibration int `json:"calibration_contexts"`
	// TestContexts is the number of contexts, under teacher forcing with the
	// references of the sentences translated, of P@1 and P@5.
	TestContexts int `json:"test_contexts"`
	// Rounds is the number of rounds in which each setting was timed, and Resamples the
	// number of resamples of the bootstrap.
	Rounds    int `json:"rounds"`
	Resamples int `json:"resamples"`
	// Seconds is the time of the whole run.
	Seconds float64 `json:"seconds"`
	// Widths are the widths of the beam, in the order of the elements of Decodings.
	Widths []int `json:"widths"`
	// Rows are the methods, the dense scan first and the exact layer among them.
	Rows []Translator `json:"rows"`
	// Examples are sentences that the method named in Example translates in
	// another way than the exact layer does, with the widest beam.
	Example  string        `json:"example,omitempty"`
	Examples []Differently `json:"examples,omitempty"`
}

// Translator is one setting of one method.
type Translator struct {
	Method string `json:"method"`
	Build  string `json:"build,omitempty"`
	Query  string `json:"query,omitempty"`
	// BuildSeconds is the time of the construction, on all cores.
	BuildSeconds float64 `json:"build_seconds"`
	P1           float64 `json:"p1"`
	P5           float64 `json:"p5"`
	// For screens only: the precision on the contexts of training sentences that the screens did
	// not learn from, the mean number of rows scanned, and the share of contexts that the exact
	// layer answered.
	HeldP1      float64 `json:"held_out_p1,omitempty"`
	HeldP5      float64 `json:"held_out_p5,omitempty"`
	RowsScanned float64 `json:"rows_scanned,omitempty"`
	ExactShare  float64 `json:"exact_share,omitempty"`
	// OverAll reports that its log-probabilities are over all labels, with a tail.
	OverAll   bool       `json:"over_all,omitempty"`
	Decodings []Decoding `json:"decodings"`
}

// Decoding is a translation of all sentences with one width of the beam.
type Decoding struct {
	BLEU float64 `json:"bleu"`
	// Low and High are the ends of the interval of the difference to the exact layer's
	// BLEU: 95 %, by the paired bootstrap.
	Low  float64 `json:"bleu_difference_low"`
	High float64 `json:"bleu_difference_high"`
	// Differ is the number of sentences whose translation differs from the exact layer's.
	Differ int `json:"differ"`
	// Cut is the number of translations that did not end by themselves.
	Cut int `json:"cut"`
	Timing
}

// Differently is a sentence with two translations.
type Differently struct {
	Source    string `json:"source"`
	Reference string `json:"reference"`
	Exact     string `json:"exact"`
	Screened  string `json:"screened"`
}

// Save writes the JSON to path, where it appears when it is complete.
func (t *Translation) Save(path string) error { return save(path, t) }
