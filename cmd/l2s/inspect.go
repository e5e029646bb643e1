package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

func inspectVerb() *verb {
	return &verb{
		name: "inspect", args: "m.l2s",
		summary: "show what a screen file holds",
		help: `
Prints the shape of a screen, the sizes of its candidate sets, the fingerprint
of the layer it belongs to, and the record of its training.

Example:
  l2s inspect m.l2s --json`,
		run: runInspect,
	}
}

// contents is what inspect --json prints.
type contents struct {
	Clusters    int             `json:"clusters"`
	Dim         int             `json:"dim"`
	Labels      int             `json:"labels"`
	SetSizes    setSizes        `json:"set_sizes"`
	Sizes       []int           `json:"sizes"`
	Always      []uint32        `json:"always"`
	Fingerprint string          `json:"layer_fingerprint"`
	Record      json.RawMessage `json:"record"`
}

type setSizes struct {
	Min    int     `json:"min"`
	Median int     `json:"median"`
	Mean   float64 `json:"mean"`
	Max    int     `json:"max"`
}

func runInspect(_ context.Context, e *env) error {
	asJSON := e.flags.Bool("json", false, "print JSON")
	pos, err := e.parse("the screen file")
	if err != nil {
		return err
	}
	m, err := loadModel(pos[0], nil)
	if err != nil {
		return err
	}
	fp := m.Fingerprint()
	c := contents{
		Clusters: m.Clusters(), Dim: m.Dim(), Labels: m.Labels(),
		Always: append([]uint32{}, m.Always()...), Fingerprint: hex.EncodeToString(fp[:]), Record: m.Record(),
	}
	for t := range m.Clusters() {
		c.Sizes = append(c.Sizes, len(m.Candidates(t)))
	}
	sorted := slices.Sorted(slices.Values(c.Sizes))
	c.SetSizes = setSizes{sorted[0], sorted[len(sorted)/2], m.MeanSetSize(), sorted[len(sorted)-1]}
	if *asJSON {
		return writeJSON(e.stdout, c)
	}
	fmt.Fprintf(e.stdout, "clusters         %d of dimension %d\nlabels           %d\ncandidate sets   min %d, median %d, mean %.1f, max %d\n",
		c.Clusters, c.Dim, c.Labels, c.SetSizes.Min, c.SetSizes.Median, c.SetSizes.Mean, c.SetSizes.Max)
	always := "none"
	if len(c.Always) > 0 {
		always = strings.Trim(fmt.Sprint(c.Always), "[]")
	}
	fmt.Fprintf(e.stdout, "always included  %s\nlayer            %s\n", always, c.Fingerprint)
	var pretty strings.Builder
	enc := json.NewEncoder(&pretty)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c.Record); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "record           %s", pretty.String())
	return nil
}
