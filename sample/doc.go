// Package sample draws tokens: from the logits of a softmax layer to a label, by
// processors in a stated order.
//
// The edits come first and change logits: a mask of allowed and banned labels, biases,
// and penalties on labels that have occurred. Then come, in the order of the options, the
// temperature T, which divides logits, and the truncations. The labels that are left are
// in the order of their logits (ties by the lower label), and a truncation keeps the first
// few of them:
//
//   - top-k keeps k;
//   - top-p keeps the fewest that have the share p of the probability (Holtzman, Buys, Du, Forbes
//     and Choi 2020);
//   - min-p keeps the labels with at least p times the probability of the first (Nguyen,
//     Baker, Neo, Roush, Kirsch and Shwartz-Ziv 2024).
//
// Typical sampling also keeps the fewest that have a share, but first takes the labels whose -log p
// is nearest to the entropy (Meister, Pimentel, Wiher and Cotterell 2023).
//
// A label that is left is drawn with a probability proportional to e^(x/T). [LlamaCPP],
// [VLLM] and [HuggingFace] are the orders of these programs: they differ in the
// places of the temperature and of min-p.
//
// A sampler is made once, and then asked for one token after the other:
//
//	o := sample.DefaultOptions()
//	o.Temperature, o.TopP = 0.8, 0.9
//	s, err := sample.New(layer, nil, o)
//	...
//	token, err := s.Draw(h, sample.Edits{History: tokens})
//
// Each goroutine needs its own sampler; layers and screens are shared.
//
// Without an index a draw is exact. Over a screen the candidates of the context
// have their exact logits, and its tail bounds the weight of all other labels. After a top-k or a
// min-p the candidates alone answer, and [Token.Variation] bounds the distance of their
// distribution from the layer's. Any other draw has the distribution of the layer, which answers if
// the candidates leave the draw open, unless Options.MaxVariation allows more.
//
// Over a preview a top-k or a min-p that comes first is over the labels that the
// preview finds; other draws are from the layer.
//
// Equal seeds, layers, screens, contexts and edits give equal tokens on every CPU.
package sample
