// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command calibration prints, from the measurements in the directory PAL_DATA,
// how far calibration can be trusted: how stable a GPU's class is, how its
// bins compare with the artifact's, and how drift detection does on the
// measured noise.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/sim/paldata"
)

func main() {
	if paldata.Dir() == "" {
		fmt.Fprintf(os.Stderr, "%s is not set: name the directory with the measurements\n", paldata.Env)
		os.Exit(1)
	}
	if err := report(os.Stdout, paldata.Dir()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(w io.Writer, dir string) error {
	if err := reportClasses(w, dir); err != nil {
		return err
	}
	if err := reportStability(w, dir); err != nil {
		return err
	}
	if err := reportBins(w, dir); err != nil {
		return err
	}
	return reportDrift(w, dir)
}

func reportClasses(w io.Writer, dir string) error {
	fmt.Fprintln(w, "GPUs per class, all runs taken together:")
	for _, s := range paldata.AllSeries() {
		data, err := readSeries(dir, s)
		if err != nil {
			return err
		}
		byClass, outliers, err := data.classes()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "  %-10s %-9s %v, %d outliers\n", s.Cluster, s.App, byClass, outliers)
	}
	fmt.Fprintln(w)
	return nil
}

func reportStability(w io.Writer, dir string) error {
	fmt.Fprintln(w, "Class of a GPU from the first half of its runs against the second half (edges 0.99, 1.01, 1.03, 1.06):")
	fmt.Fprintf(w, "  %-10s %-9s %5s %7s %7s %8s %9s %10s  %s\n", "cluster", "app", "GPUs", "same", "held", "within 1", "rank corr", "noise only", "halves of one class")
	for _, s := range paldata.AllSeries() {
		data, err := readSeries(dir, s)
		if err != nil {
			return err
		}
		st, err := data.halves(2, 1)
		if err != nil {
			return err
		}
		if st.GPUs == 0 {
			fmt.Fprintf(w, "  %-10s %-9s one run a GPU\n", s.Cluster, s.App)
			continue
		}
		fmt.Fprintf(w, "  %-10s %-9s %5d %6.1f%% %6.1f%% %7.1f%% %9.3f %9.1f%%  %d\n", s.Cluster, s.App, st.GPUs,
			100*st.Same, 100*st.Held, 100*st.Within1, st.Rank, 100*st.Ceiling, st.OneClass)
	}
	return nil
}

func reportBins(w io.Writer, dir string) error {
	fmt.Fprintln(w, "\nK-means on the GPUs' medians, PAL's rule (K = 2 + outliers), and silhouettes for K = 2…10:")
	for _, s := range paldata.AllSeries() {
		data, err := readSeries(dir, s)
		if err != nil {
			return err
		}
		m := data.medians()
		b := profile.Bins(m, profile.KMeans, nil)
		fmt.Fprintf(w, "  %-10s %-9s %d bins, silhouettes", s.Cluster, s.App, len(b.Values))
		for k := 2; k <= 10; k++ {
			fmt.Fprintf(w, " %.3f", profile.Silhouette(m, profile.KMeans1D(m, k)))
		}
		fmt.Fprintln(w)
	}
	return nil
}

func reportDrift(w io.Writer, dir string) error {
	data, err := readSeries(dir, paldata.AllSeries()[0])
	if err != nil {
		return err
	}
	gpus := data.noises(10)
	for _, runs := range []int{1, 3} {
		f := simulateDrift(gpus, 5, runs, 1)
		fmt.Fprintf(w, "\nDrift on Longhorn's SGEMM noise, %d GPUs, weekly sessions of %d runs, %d years:\n", f.GPUs, runs, f.Years)
		fmt.Fprintf(w, "  per GPU-year: class changes %.3f (%.2f without hysteresis), alarms %.2f, confirmed false alarms %.3f\n",
			f.ClassChangesPerGPUYear, f.ClassChangesWithout, f.AlarmsPerGPUYear, f.FalseConfirmedPerGPUYear)
		for _, step := range []float64{0.005, 0.01, 0.02} {
			fmt.Fprintf(w, "  step of %.1f %%: alarm within 2 sessions %.1f %% (median %.0f), confirmed within 3 %.1f %%\n",
				100*step, 100*f.StepFound[step], f.StepMedianSessions[step], 100*f.StepConfirmed[step])
		}
	}
	return nil
}
