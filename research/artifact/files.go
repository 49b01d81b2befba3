// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Files names the measurement files, one per application class.
type Files [pal.NumClasses]string

// Longhorn returns the files from which the artifact draws its cluster, in the directory PAL_DATA.
// The artifact has no file for class C, and uses the file of class B.
func Longhorn(dir string) Files {
	var files Files
	for k, name := range []string{"resnet", "bert", "bert", "pagerank"} {
		files[k] = filepath.Join(dir, "var_longhorn_"+name+".csv")
	}
	return files
}

// Read reads the measurements, each divided by the median of its file. If the file has these
// quotients, Read takes them from the file, so that they equal the artifact's to the last bit.
func (f Files) Read() (Rows, error) {
	var rows Rows
	for k, class := range pal.AppClasses() {
		if f[k] == "" {
			return rows, fmt.Errorf("no file for class %s", class)
		}
		measured, err := paldata.ReadVariability(f[k])
		if err != nil {
			return rows, err
		}
		m := median(measured)
		for _, r := range measured {
			v := r.Norm
			if v == 0 {
				v = r.Time / m
			}
			rows[k] = append(rows[k], v)
		}
	}
	return rows, nil
}

func median(rows []paldata.Row) float64 {
	times := make([]float64, 0, len(rows))
	for _, r := range rows {
		times = append(times, r.Time)
	}
	slices.Sort(times)
	n := len(times)
	if n == 0 {
		return 1
	}
	return (times[(n-1)/2] + times[n/2]) / 2
}
