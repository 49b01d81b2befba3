// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"fmt"
	"math"
	"strconv"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// Class is the application class that was learned for a job, with the features from which it was
// learned.
type Class struct {
	Job      cluster.JobKey
	Verdict  classify.Verdict
	Features classify.Features
}

// Class returns the variable with the class that was learned for a job. The class applies to the
// job's next runs. The features are compared with the features of other jobs.
func (s Store) Class(k cluster.JobKey) Variable[Class] {
	return Variable[Class]{Path(s.Classes().prefix, k.Namespace, k.ID), s.nomad, s.Classes().codec}
}

// Classes returns the shards with the classes that were learned for all jobs.
func (s Store) Classes() Shards[Class, []Class] {
	return Shards[Class, []Class]{prefix: "nomad-pal/classes", nomad: s.nomad, codec: codec[Class]{encode: encodeClass, decode: decodeClass}, join: whole[Class]}
}

// FeaturesOf returns the stored features of jobs, for comparison with other jobs.
func FeaturesOf(known []Class) []classify.Features {
	out := make([]classify.Features, len(known))
	for i, k := range known {
		out[i] = k.Features
	}
	return out
}

// numbersOf maps the names of items in the variable to the numbers in the features.
func numbersOf(f *classify.Features) map[string]*float64 {
	return map[string]*float64{"power_cap": &f.PowerCap, "power": &f.Power, "compute": &f.Compute, "memory": &f.Memory}
}

func encodeClass(c Class) (items, error) {
	is := items{"namespace": c.Job.Namespace, "job": c.Job.ID, "class": string(c.Verdict.Class), "reason": c.Verdict.Reason,
		"readings": strconv.Itoa(c.Features.Readings)}
	for name, x := range numbersOf(&c.Features) {
		if !math.IsNaN(*x) {
			is[name] = strconv.FormatFloat(*x, 'g', 6, 64)
		}
	}
	return is, nil
}

func decodeClass(is items) (Class, error) {
	class, err := pal.ParseAppClass(is["class"])
	if err != nil {
		return Class{}, fmt.Errorf("the stored class of job %q: %w", is["job"], err)
	}
	c := Class{Job: cluster.JobKey{Namespace: is["namespace"], ID: is["job"]}, Verdict: classify.Verdict{Class: class, Reason: is["reason"]}}
	if c.Features.Readings, err = strconv.Atoi(is["readings"]); err != nil {
		return Class{}, fmt.Errorf("the readings of job %q: %q is not a number", is["job"], is["readings"])
	}
	for name, to := range numbersOf(&c.Features) {
		*to = math.NaN()
		if text, ok := is[name]; ok {
			if *to, err = strconv.ParseFloat(text, 64); err != nil {
				return Class{}, fmt.Errorf("%s of job %q: %q is not a number", name, is["job"], text)
			}
		}
	}
	return c, nil
}
