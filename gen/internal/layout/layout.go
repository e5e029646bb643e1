// Package layout tells assembly the places of the fields of structs that Go code fills in.
package layout

import (
	"fmt"
	"strings"
)

// Struct is the layout of a struct. Its String goes into the comments of the
// functions that read it, where a test of package kernels compares it with the
// struct's own.
type Struct struct {
	name   string
	fields []field
}

type field struct {
	name  string
	bytes int
}

// BatchContexts is kernels.BatchContexts.
const BatchContexts = 4

// Bound is kernels.bound: one context.
var Bound = Struct{"kernels.bound", []field{
	{"codes", 8},
	{"high", 8},
	{"excess", 4},
	{"scale", 4},
	{"norm", 4},
	{"err", 4},
	{"slack", 4},
}}

// BatchBound is kernels.batchBound: four numbers for each context.
var BatchBound = Struct{"kernels.batchBound", []field{
	{"codes", 8 * BatchContexts},
	{"excess", 16 * BatchContexts},
	{"scale", 16 * BatchContexts},
	{"norm", 16 * BatchContexts},
	{"err", 16 * BatchContexts},
	{"slack", 4},
}}

// BlockBound is kernels.blockBound: a number for each context.
var BlockBound = Struct{"kernels.blockBound", []field{
	{"planes", 8},
	{"meta", 8},
	{"bytes", 8},
	{"ahead", 8},
	{"scale", 4 * BatchContexts},
	{"err", 4 * BatchContexts},
	{"norm", 4 * BatchContexts},
	{"slack", 4},
}}

// At returns the offset of a field in bytes.
func (s Struct) At(name string) int {
	at := 0
	for _, f := range s.fields {
		if f.name == name {
			return at
		}
		at += f.bytes
	}
	panic("layout: " + s.name + " has no field " + name)
}

// String returns the struct's name and, after a colon, each field and its place.
func (s Struct) String() string {
	var places []string
	for _, f := range s.fields {
		places = append(places, fmt.Sprintf("%s at %d", f.name, s.At(f.name)))
	}
	return s.name + ": " + strings.Join(places, ", ")
}
