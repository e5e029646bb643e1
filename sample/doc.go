// Package sample draws tokens: from the logits of a softmax layer to a label, by
// processors in a stated order.
//
// The edits come first and change logits: a mask of allowed and banned labels, biases,
// and penalties on labels that have occurred. Then come, in the order that is asked for,
// the temperature T, which divides logits, and the truncations, each of which keeps the
// first few labels in the order of their logits (ties by the lower label), of those that
// are left:
//
//   - top-k keeps k;
//   - top-p keeps the fewest that hold the share p of the probability (Holtzman, Buys,
//     Du, Forbes and Choi 2020);
//   - min-p keeps those with at least p times the probability of the first (Nguyen,
//     Baker, Neo, Roush, Kirsch and Shwartz-Ziv 2024).
//
// What is left is drawn from with probabilities in proportion to e^(x/T). [LlamaCPP],
// [VLLM] and [HuggingFace] are the orders of those programs: they differ in whether
// the temperature comes before or behind the truncations that depend on it.
//
// Over a layer ([New]) a draw is exact. Over a screen ([NewScreened]) the candidates
// of the context have their exact logits, and its regression of the tail says about how
// much all other labels weigh; the exact layer answers if that does not suffice.
// [Token.Grade] says of each draw how good it is.
//
// Equal seeds, layers, screens, contexts and edits give equal tokens on every CPU.
package sample
