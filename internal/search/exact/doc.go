// Package exact has layers, requests and the exact search, and the parts that the other searches
// share: queries that are set once for several layers, packed lists, intervals of logits, and their
// order.
package exact
