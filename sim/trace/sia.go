// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"io"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Model is what the Sia traces know of a model: seconds per iteration and
// application class (PAL artifact, workload.py:427-452).
type Model struct {
	Name      string
	IterTimeS float64
	Class     pal.AppClass
}

// SiaModels are the models of the Sia traces.
func SiaModels() []Model {
	return []Model{
		{"resnet50", 0.17540429367763434, pal.ClassA},
		{"BERT", 0.179, pal.ClassB},
		{"GPT2", 3.5714, pal.ClassB},
		{"DCGAN", 0.0469266931, pal.ClassB},
		{"vgg19", 0.300610341, pal.ClassC},
		{"PointNet", 0.28125, pal.ClassD},
	}
}

// ReadSia reads a Sia trace as the PAL artifact does: columns job_id,
// num_gpus, submit_time (s), duration (a number of iterations) and model. An
// optional column estimate gives the user's estimate of the work in seconds; after
// the jobs that must have finished first, with spaces between; deadline by when it is
// to have ended, in seconds after submit_time; priority, of which the higher goes first (50); array
// and parallel the name of its array and how many of that run at a time.
func ReadSia(name string, r io.Reader) (Trace, error) {
	models := modelsByName()
	t, err := openTable(name, r, nil, "job_id", "num_gpus", "submit_time", "duration", "model")
	if err != nil {
		return Trace{}, err
	}
	tr := Trace{Name: name, Format: "sia"}
	err = t.each(func(t *table) {
		j := siaJob(t, models)
		if n := len(tr.Jobs); n > 0 && j.SubmitS < tr.Jobs[n-1].SubmitS {
			t.fail("column %q: %v is before %v of the line above", "submit_time", j.SubmitS, tr.Jobs[n-1].SubmitS)
		}
		tr.Jobs = append(tr.Jobs, j)
	})
	return tr, err
}

// defaultPriority is that of Nomad's jobs which name none.
const defaultPriority = 50

func siaJob(t *table, models map[string]Model) Job {
	m, ok := models[t.text("model")]
	if !ok {
		t.fail("column %q: model %q is unknown", "model", t.text("model"))
	}
	j := Job{ID: t.text("job_id"), Line: t.line, Name: m.Name, Class: m.Class, GPUs: t.int("num_gpus", 1), SubmitS: t.float("submit_time"),
		Iterations: t.float("duration"), IterTimeS: m.IterTimeS}
	// The PAL artifact does not have the columns below.
	if t.text("estimate") != "" {
		j.EstimateS = t.float("estimate")
	}
	if after := t.text("after"); after != "" {
		j.After = strings.Fields(after)
	}
	if t.text("deadline") != "" {
		j.DeadlineS = t.float("deadline")
	}
	j.Priority = defaultPriority
	if t.text("priority") != "" {
		j.Priority = t.int("priority", 0)
	}
	if j.Array = t.text("array"); j.Array != "" {
		j.Parallel = t.int("parallel", 1)
	}
	return j
}
