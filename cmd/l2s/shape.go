package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/learning-to-screen/l2s/train"
)

// shape is what --clusters gives: clusters in all, and the groups through which they
// are found, 0 for none. The groups overlap, or have clusters of their own.
type shape struct {
	clusters, groups int
	overlap          bool
}

// parseShape reads R, R/G, or GxR, the R of which are the clusters of one group.
func parseShape(s string) (shape, error) {
	bad := errors.New("expected a whole number R, at least 1, or R/G with G at most R, or GxR")
	first, second, overlap := strings.Cut(s, "/")
	two := overlap
	if !overlap {
		first, second, two = strings.Cut(s, "x")
	}
	a, err := parseWhole(first, 1)
	if err != nil || a > math.MaxInt32 {
		return shape{}, bad
	}
	if !two {
		return shape{clusters: a}, nil
	}
	b, err := parseWhole(second, 1)
	switch {
	case err != nil, overlap && b > a, !overlap && b > math.MaxInt32/a:
		return shape{}, bad
	case overlap:
		return shape{a, b, true}, nil
	}
	return shape{a * b, a, false}, nil
}

// String is the shape as parseShape reads it.
func (s shape) String() string {
	switch {
	case s.groups == 0:
		return strconv.Itoa(s.clusters)
	case s.overlap:
		return fmt.Sprintf("%d/%d", s.clusters, s.groups)
	}
	return fmt.Sprintf("%dx%d", s.groups, s.clusters/s.groups)
}

// set sets the options that make the shape.
func (s shape) set(o *train.Options) {
	switch {
	case s.groups == 0:
		o.Groups, o.Overlap, o.Clusters = 0, 0, s.clusters
	case s.overlap:
		o.SetOverlap(s.clusters, s.groups)
	default:
		o.SetLevels(s.groups, s.clusters/s.groups)
	}
}

// shapeFor is the shape of a run without --clusters.
func shapeFor(contexts int) shape {
	groups, clusters := train.ClustersFor(contexts)
	if groups == 0 {
		return shape{clusters: clusters}
	}
	return shape{groups * clusters, groups, false}
}
