// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command quantiles prints the tables of sim/population as Go source, computed
// from the measurements in the directory PAL_DATA.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/nomad-pal/nomad-pal/sim/paldata"
)

func main() {
	tables, err := paldata.Tables(paldata.Dir())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, t := range tables {
		c := t.Compact()
		fmt.Printf("{\nCluster: %q, App: %q, GPUs: %d, Runs: %d, MedianTime: %g, Noise: %g,\nQuantiles: []float64{%s},\n",
			c.Cluster, c.App, c.GPUs, c.Runs, c.MedianTime, c.Noise, list(c.Quantiles))
		if c.OutlierShare > 0 {
			fmt.Printf("OutlierShare: %g, OutlierQuantiles: []float64{%s},\n", c.OutlierShare, list(c.OutlierQuantiles))
		}
		fmt.Println("},")
	}
}

func list(xs []float64) string {
	s := make([]string, len(xs))
	for i, x := range xs {
		s[i] = fmt.Sprint(x)
	}
	return strings.Join(s, ", ")
}
