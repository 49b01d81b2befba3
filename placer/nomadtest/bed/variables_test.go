// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// The placer stores in variables what improves its decisions, not what it needs. If it cannot read
// or write any of them, for example because a quota is used up or somebody has locked one, it still
// places jobs, and reports what does not work.
func TestNoVariables(t *testing.T) {
	for name, fails := range map[string]func(r nomadtest.Request) bool{
		"none can be written": func(r nomadtest.Request) bool { return r.Method != http.MethodGet },
		"none can be read":    func(r nomadtest.Request) bool { return r.Method == http.MethodGet },
		"decisions cannot":    func(r nomadtest.Request) bool { return strings.Contains(r.Path, "/decisions/") },
		"nothing can":         func(nomadtest.Request) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, Options{Seed: 1}, func(w *World) {
				w.AddNodes(2, 4)
				w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
					if strings.HasPrefix(r.Path, "/v1/var") && fails(r) {
						return nomadtest.Failed
					}
					return nomadtest.None
				})
				p := w.StartPlacer()
				w.Submit(Gang{Name: "a", Members: 2, GPUs: 2, Runs: 10 * time.Second})
				w.ExpectRunning("a", 5*time.Second)
				w.ExpectFinished("a", time.Minute)
				w.Expect("it reports what does not work", 10*time.Second, func() bool { return len(p.Status().Warnings) > 0 })
				if v := p.Vitals(); v.Restarts > 0 {
					t.Errorf("the placer restarted %d times: %s", v.Restarts, v.LastError)
				}
				w.Nomad.FailBy(nil)
				w.Expect("everything works again", 10*time.Minute, func() bool { return len(p.Status().Warnings) == 0 })
			})
		})
	}
}

// Somebody with write permission writes nonsense into all variables. Gangs are still placed,
// failures are recorded, and all queries work, at the latest when the placer has written the
// variables again.
func TestNonsenseInVariables(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		nonsense := func() {
			for path, item := range map[string]string{
				"quarantine": "json", "failures": "json", "history/0": "runs", "history/3": "runs", "profile/0000": "data",
				"decisions/default/a": "decision", "measurements/x/0000": "csv",
			} {
				w.Nomad.SetVariable("default", "nomad-pal/"+path, map[string]string{item: `{"until": [7`})
			}
		}
		nonsense()
		client, err := nomad.NewClient(w.Nomad.Config("reader", ""), "default")
		if err != nil {
			t.Fatal(err)
		}
		p := w.StartPlacer()
		w.Submit(Gang{Name: "a", Members: 2, GPUs: 2})
		w.ExpectRunning("a", 5*time.Second)
		w.Submit(Gang{Name: "bad", Runs: time.Second, Exit: 1})
		noted := func() bool {
			fs, err := store.In(client).Failures().Read(w.T.Context())
			return err == nil && slices.ContainsFunc(fs.Of.Kept, func(f palapi.Failure) bool { return f.Job == "bad" })
		}
		w.Expect("the failure is recorded", time.Minute, noted)
		nonsense()
		w.Submit(Gang{Name: "b", Members: 2, GPUs: 2})
		w.ExpectRunning("b", 5*time.Second)
		if jobs := w.snapshot().Jobs(); len(jobs) == 0 {
			t.Error("no jobs are shown")
		}
		if v := p.Vitals(); v.Restarts > 0 {
			t.Errorf("the placer restarted %d times: %s", v.Restarts, v.LastError)
		}
	})
}

// Nomad takes ten seconds for each write of a variable. No gang waits for these writes, and no
// record is lost.
func TestSlowVariables(t *testing.T) {
	Run(t, Options{Seed: 1}, func(w *World) {
		w.AddNodes(2, 4)
		w.Nomad.FailBy(func(r nomadtest.Request) nomadtest.Fault {
			if r.Write() && strings.HasPrefix(r.Path, "/v1/var/") {
				return nomadtest.Slow
			}
			return nomadtest.None
		})
		p := w.StartPlacer()
		var paths []string
		for i := range 8 {
			name := fmt.Sprint("gang-", i)
			w.Submit(Gang{Name: name, Members: 2, GPUs: 4, Runs: 3 * time.Second})
			w.ExpectRunning(name, time.Second)
			w.ExpectFinished(name, 5*time.Second)
			paths = append(paths, "nomad-pal/decisions/default/"+name)
		}
		w.RunFor(2 * time.Minute)
		for _, path := range paths {
			if w.Nomad.Variable("default", path) == nil {
				t.Errorf("%s was not written", path)
			}
		}
		p.Stop()
	})
}
