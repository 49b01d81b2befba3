// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command policies compares queue and placement policies over workloads, GPU populations, loads,
// locality penalties and wrong estimates. The command writes the figures of each variant as JSON
// (bench/results/policies.json; `make sim-policies`).
//
// The command needs PAL_DATA, because the evaluation workloads and the GPUs are those of the PAL
// artifact. Policies were tuned on generated workloads only.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/nomad-pal/nomad-pal/bench/paldata"
)

func main() {
	out := flag.String("o", "-", "write the comparison of policies to `FILE`")
	gains := flag.String("gain", "", "write the study of the parts of PAL's gain to `FILE`")
	workers := flag.Int("workers", 2, "number of runs at a time")
	flag.Parse()
	if err := run(*out, *gains, *workers); err != nil {
		fmt.Fprintf(os.Stderr, "policies: %v\n", err)
		os.Exit(1)
	}
}

func run(out, gains string, workers int) error {
	dir := paldata.Dir()
	if dir == "" {
		return fmt.Errorf("%s is not set: the evaluation needs the workloads of the PAL artifact", paldata.Env)
	}
	in, err := readInputs(dir)
	if err != nil {
		return err
	}
	var res []*result
	for _, s := range in.scenarios() {
		for _, v := range variants() {
			res = append(res, &result{Scenario: s.name, Set: s.set, Variant: v.name, Preempts: v.preempt, scenario: s, variant: v})
		}
	}
	if err := each(res, workers, func(r *result) error { return in.measure(r) }); err != nil {
		return err
	}
	if err := write(out, res); err != nil || gains == "" {
		return err
	}
	gs, err := in.gains()
	if err != nil {
		return err
	}
	return write(gains, gs)
}

// write writes one line per result.
func write[T any](path string, rows []T) (err error) {
	f := os.Stdout
	if path != "-" {
		if f, err = os.Create(path); err != nil {
			return err
		}
		defer f.Close()
	}
	sep := "["
	for _, r := range rows {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(f, "%s\n%s", sep, b); err != nil {
			return err
		}
		sep = ","
	}
	_, err = fmt.Fprintln(f, "\n]")
	return err
}

// each measures all results, at most workers at a time, and returns the first error.
func each(res []*result, workers int, measure func(*result) error) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	errs := make([]error, len(res))
	for i, r := range res {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			errs[i] = measure(r)
			<-slots
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
