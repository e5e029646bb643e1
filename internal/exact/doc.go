// Package exact is the engine of package softmax, which is its public form: layers, searchers and
// requests are the same memory there, with the methods that programs need. Here are the parts that
// other packages of the module share too: queries that are set once for several layers, packed
// lists, intervals of logits, and their order.
package exact
