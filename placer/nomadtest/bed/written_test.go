// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/long"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// odd returns values that somebody could write instead of a JSON value of the same type.
func odd(v any) []string {
	switch v := v.(type) {
	case float64:
		return []string{"-1", "0", "9223372036854775807", "-9223372036854775808", "1e308", "-1e308"}
	case string:
		if strings.HasPrefix(v, "20") && strings.Contains(v, "T") {
			return []string{`"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"1677-01-01T00:00:00Z"`}
		}
		return []string{`""`, `"x"`, `"\u0000\u202e"`}
	case bool:
		return []string{fmt.Sprint(!v)}
	case []any:
		return []string{"null", "[]", "[null]"}
	case map[string]any:
		return []string{"null", "{}"}
	}
	return nil
}

// mutants calls use with each text in which one value of the JSON text is odd, and with what was
// changed.
func mutants(text string, use func(at, mutant string)) {
	var root any
	if json.Unmarshal([]byte(text), &root) != nil {
		return
	}
	show := func() string { b, _ := json.Marshal(root); return string(b) }
	var visit func(at string, v any, set func(any))
	visit = func(at string, v any, set func(any)) {
		for _, o := range odd(v) {
			set(json.RawMessage(o))
			use(at+" = "+o, show())
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				visit(at+"."+k, v[k], func(to any) { v[k] = to })
			}
		case []any:
			for i := range v[:min(2, len(v))] {
				visit(fmt.Sprint(at, "[", i, "]"), v[i], func(to any) { v[i] = to })
			}
		}
	}
	visit("", root, func(to any) { root = to })
}

// oddVariables plays jobs of all kinds until the placer has written all of its variables.
func oddVariables(w *World) {
	w.AddNodes(3, 4)
	p := w.StartPlacer()
	w.Submit(Gang{Name: "done", Members: 2, GPUs: 2, Runs: 10 * time.Second})
	w.ExpectFinished("done", time.Minute)
	w.Submit(Gang{Name: "bad", Runs: time.Second, Exit: 1})
	w.Submit(Gang{Name: "low", Members: 2, GPUs: 4, Runs: 100 * time.Hour, Priority: 20, Meta: map[string]string{"pal_preempt": "true"}})
	w.ExpectRunning("low", 10*time.Second)
	w.RunFor(10 * time.Minute)
	w.Submit(Gang{Name: "high", Members: 2, GPUs: 4, Runs: 1000 * time.Hour, Priority: 90})
	w.ExpectRunning("high", time.Minute)
	w.Submit(Gang{Name: "after", Runs: 1000 * time.Hour, Meta: map[string]string{"pal_after": "done"}})
	w.RunFor(time.Minute)
	w.Quarantine("GPU-0-0")
	said := &gang.Said{By: "a", At: time.Now(), Why: "b"}
	controls := map[string]gang.Control{"default/low": {Held: said, Priority: 3, Requeue: said}}
	if err := store.In(w.client()).ControlsOf("default").Write(w.T.Context(), controls); err != nil {
		w.T.Fatal(err)
	}
	w.RunFor(6 * time.Minute)
	p.Stop()
}

// expectWell starts a placer, and checks that it places a gang, answers all queries, and does not
// restart. what is the odd value.
func (w *World) expectWell(what, name string) {
	p := w.StartPlacer()
	w.RunFor(2 * time.Second)
	w.Submit(Gang{Name: name, Runs: 2 * time.Second})
	if !w.Until(20*time.Second, func() bool { return w.Finished(Key(name)) }) {
		w.T.Errorf("%s: a gang does not run: %s", what, w.Describe())
	}
	s := w.snapshot()
	s.Jobs()
	s.GPUs()
	s.Checks()
	s.Map()
	for _, job := range []string{"low", "high", "bad", "after", "done"} {
		if e, err := s.Explain(w.T.Context(), Key(job)); err == nil {
			if _, err := json.Marshal(e); err != nil {
				w.T.Errorf("%s: explain %s: %v", what, job, err)
			}
		}
	}
	if v := p.Vitals(); v.Restarts > 0 || v.Panics > 0 {
		w.T.Errorf("%s: %d restarts, %d panics: %s", what, v.Restarts, v.Panics, v.LastError)
	}
	p.Stop()
	if err := w.Purge(Key(name)); err != nil {
		w.T.Error(err)
	}
	if broken := w.Broken(); len(broken) > 0 {
		w.T.Fatalf("%s: %v", what, broken)
	}
}

// Somebody with write permission writes values of the right type, but absurd ones, into the
// placer's variables: one at a time, while no placer is active.
func TestOddVariables(t *testing.T) {
	Run(t, Options{Seed: 1, Partial: time.Hour, Placer: func(c *model.Config) {
		c.Queue.Order, c.Queue.Preempt, c.Queue.FairShare = queue.FIFO, true, true
	}}, func(w *World) {
		oddVariables(w)
		vars, err := w.client().ListVariables(w.T.Context(), "nomad-pal/")
		if err != nil {
			w.T.Fatal(err)
		}
		n := 0
		for _, v := range vars {
			is := w.Nomad.Variable("default", v.Path)
			for _, item := range slices.Sorted(maps.Keys(is)) {
				mutants(is[item], func(at, mutant string) {
					if n++; long.Skips(n, 0, 61) {
						return
					}
					to := maps.Clone(is)
					to[item] = mutant
					w.Nomad.SetVariable("default", v.Path, to)
					w.expectWell(v.Path+" "+item+at, fmt.Sprint("n-", n))
				})
			}
			w.Nomad.SetVariable("default", v.Path, is)
		}
		if n < 1000 {
			w.T.Errorf("%d values of %d variables", n, len(vars))
		}
	})
}
