// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// connect returns the store in the cluster, as seen by a client of this name.
func connect(t *testing.T, s *nomadtest.Server, name string) Store {
	t.Helper()
	c, err := nomad.NewClient(s.Config(name, ""), "")
	if err != nil {
		t.Fatal(err)
	}
	return In(c)
}

func newStore(t *testing.T) (*nomadtest.Server, Store) {
	t.Helper()
	s := nomadtest.New(nomadtest.Options{Seed: 1})
	t.Cleanup(s.Close)
	return s, connect(t, s, "c")
}

// all are the variables with a prefix, by path.
func all(t *testing.T, s *nomadtest.Server, prefix string) map[string]items {
	t.Helper()
	vars, err := connect(t, s, "look").nomad.ListVariables(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]items{}
	for _, v := range vars {
		out[v.Path] = s.Variable("default", v.Path)
	}
	return out
}

// Nomad allows few characters in paths, and no two names may share a path.
func TestPath(t *testing.T) {
	allowed := regexp.MustCompile(`^[a-zA-Z0-9_~/-]{1,128}$`)
	hashed := Path("nomad-pal/decisions", "default", "train.v2")
	seen := map[string][2]string{}
	check := func(t rapid.TB, namespace, id string) {
		path, name := Path("nomad-pal/decisions", namespace, id), [2]string{namespace, id}
		if !allowed.MatchString(path) {
			t.Errorf("%q: path %q", name, path)
		}
		if other, there := seen[path]; there && other != name {
			t.Errorf("%q and %q share %q", name, other, path)
		}
		seen[path] = name
	}
	for _, id := range []string{"train", "train.v2", hashed[strings.LastIndex(hashed, "/")+1:], "a/b", "a b", "~", "", "n.v2", ".v2",
		strings.Repeat("x", 300), "täglich", "train/dispatch-1700000000-abcdef01"} {
		for _, namespace := range []string{"default", "a", "~", strings.Repeat("n", 120), strings.Repeat("n", 121), strings.Repeat("n", 128)} {
			check(t, namespace, id)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "id")) })
	for id, want := range map[string]string{"train": "nomad-pal/decisions/team/train", "train~2": "nomad-pal/decisions/team/train~2"} {
		if got := Path("nomad-pal/decisions", "team", id); got != want {
			t.Errorf("a plain name is not readable: %q, want %q", got, want)
		}
	}
	if got := Path("nomad-pal/decisions", "team", "train.v2"); !strings.HasPrefix(got, "nomad-pal/decisions/team/~") {
		t.Errorf("a hashed name is not below its namespace: %q", got)
	}
	if got := Path("nomad-pal/measurements", "lab-3_b"); got != "nomad-pal/measurements/lab-3_b" {
		t.Errorf("a source: %q", got)
	}
}

func TestCheckSource(t *testing.T) {
	if err := CheckSource("lab-3_b"); err != nil {
		t.Error(err)
	}
	_, s := newStore(t)
	for _, bad := range []string{"", "a/b", "a b", "../x", strings.Repeat("x", 65)} {
		if err := CheckSource(bad); err == nil {
			t.Errorf("source %q is accepted", bad)
		}
		if err := s.Measurements(bad).Write(t.Context(), nil); err == nil {
			t.Errorf("measurements of source %q are stored", bad)
		}
	}
}

// However many writers change a variable at the same time, and whichever
// requests are reported as failed, no change is lost.
func TestChangeLosesNothing(t *testing.T) {
	const changers, changes = 4, 25
	for name, fault := range map[string]nomadtest.Fault{"no fault": nomadtest.None, "done, but 500": nomadtest.DoneButFailed, "not done": nomadtest.Failed} {
		t.Run(name, func(t *testing.T) {
			server, _ := newStore(t)
			if fault != nomadtest.None {
				server.FailBy(func(r nomadtest.Request) nomadtest.Fault {
					if r.Write() && server.Roll(r) < 0.2 {
						return fault
					}
					return nomadtest.None
				})
			}
			var wg sync.WaitGroup
			for who := range changers {
				v := connect(t, server, fmt.Sprint("changer-", who)).Quarantine()
				wg.Go(func() {
					var is Value[map[string]palapi.Quarantine]
					for i := range changes {
						gpu, err := fmt.Sprint(who, "-", i), errors.New("not yet")
						for err != nil {
							is, err = v.Change(t.Context(), is, func(is Value[map[string]palapi.Quarantine]) (map[string]palapi.Quarantine, error) {
								to := map[string]palapi.Quarantine{gpu: {Strikes: 1}}
								maps.Copy(to, is.Of)
								return to, nil
							})
						}
						if is.Of[gpu].Strikes != 1 || !is.There {
							t.Errorf("%s was written, but is not in %v", gpu, is)
						}
					}
				})
			}
			wg.Wait()
			server.FailBy(nil)
			is, err := connect(t, server, "look").Quarantine().Read(t.Context())
			if err != nil || len(is.Of) != changers*changes {
				t.Errorf("%d of %d changes are stored: %v", len(is.Of), changers*changes, err)
			}
		})
	}
}

// The function that makes a change gets the current value, even if somebody
// wrote, deleted or corrupted it meanwhile. If it returns an error, nothing is
// written.
func TestChangeMeanwhile(t *testing.T) {
	server, s := newStore(t)
	v := s.Heartbeat()
	for _, c := range []struct {
		name      string
		meanwhile func() error
		want      string // the agent in the value that it gets
	}{
		{"nothing", func() error { return nil }, "first"},
		{"written", func() error { return v.Write(t.Context(), Heartbeat{Agent: "other"}) }, "other"},
		{"deleted", func() error { return s.nomad.DeleteVariable(t.Context(), v.Path) }, ""},
		{"spoilt", func() error { return s.nomad.WriteVariable(t.Context(), v.Path, items{"json": "{"}) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := v.Write(t.Context(), Heartbeat{Agent: "first"}); err != nil {
				t.Fatal(err)
			}
			is, err := v.Read(t.Context())
			if err != nil || !is.There || is.Index == 0 || is.Written.IsZero() {
				t.Fatalf("%+v, %v", is, err)
			}
			if err := c.meanwhile(); err != nil {
				t.Fatal(err)
			}
			told := ""
			if is, err = v.Change(t.Context(), is, func(is Value[Heartbeat]) (Heartbeat, error) {
				if told = is.Of.Agent; is.There != (told != "") {
					t.Errorf("it gets %+v", is)
				}
				return Heartbeat{Agent: "mine"}, nil
			}); err != nil || told != c.want || is.Of.Agent != "mine" {
				t.Errorf("it gets %q, want %q; %+v, %v", told, c.want, is, err)
			}
			no := errors.New("no")
			if _, err := v.Change(t.Context(), is, func(Value[Heartbeat]) (Heartbeat, error) { return Heartbeat{}, no }); !errors.Is(err, no) {
				t.Error(err)
			}
			if is, err := v.Read(t.Context()); err != nil || is.Of.Agent != "mine" {
				t.Errorf("%+v, %v", is, err)
			}
		})
	}
	server.Fail("", "PUT /v1/var/nomad-pal/agent", nomadtest.Failed, 1)
	if _, err := v.Change(t.Context(), Value[Heartbeat]{}, func(Value[Heartbeat]) (Heartbeat, error) { return Heartbeat{}, nil }); err == nil {
		t.Error("a failed write returns no error")
	}
}

// samplesOf are measurements of n GPUs.
func samplesOf(n int, seconds float64) []profile.Sample {
	var out []profile.Sample
	for i := range n {
		out = append(out, profile.Sample{GPU: fmt.Sprintf("GPU-%036d", i), App: "resnet50", Model: "NVIDIA H200", Key: "k", Time: seconds})
	}
	return out
}

func runsOf(n int, last int64) []queue.RunTimes {
	var out []queue.RunTimes
	for i := range n {
		out = append(out, queue.RunTimes{Name: fmt.Sprint("default/job-", i), Last: last, Runs: []queue.Run{{1, 2}}})
	}
	return out
}

func profileOf(t *testing.T, n int, seconds float64) *profile.Profile {
	t.Helper()
	samples := samplesOf(n, 1)
	for i := range samples { // so random that several shards are needed after compression
		samples[i].Time = seconds + float64(i*7919%n)/float64(n)
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A write to several variables may fail at any of its requests; the next write
// repairs that, and exactly its data is stored. Until then, readers get sound
// data or an error that it is unreadable. Old variables are deleted last.
func TestHalfWritten(t *testing.T) {
	t.Run("run times", func(t *testing.T) {
		halfWritten(t, func(s Store) Shards[[]queue.RunTimes, []queue.RunTimes] { return s.RunTimes() }, runsOf(40, 1), runsOf(3, 2),
			func(runs []queue.RunTimes) bool {
				return !slices.ContainsFunc(runs, func(r queue.RunTimes) bool { return len(r.Runs) != 1 })
			})
	})
	t.Run("measurements", func(t *testing.T) {
		halfWritten(t, func(s Store) Shards[[]profile.Sample, []profile.Sample] { return s.Measurements("lab") }, samplesOf(3000, 1), samplesOf(1500, 2),
			func(ms []profile.Sample) bool {
				return !slices.ContainsFunc(ms, func(m profile.Sample) bool { return m.Time != 1 && m.Time != 2 })
			})
	})
	large, small := profileOf(t, 12_000, 1), profileOf(t, 3000, 2)
	t.Run("profile", func(t *testing.T) {
		halfWritten(t, func(s Store) Shards[profile.Shard, *profile.Profile] { return s.Profile() }, large, small,
			func(p *profile.Profile) bool { return len(p.GPUs) == len(large.GPUs) || len(p.GPUs) == len(small.GPUs) })
	})
}

func halfWritten[T, V any](t *testing.T, of func(Store) Shards[T, V], was, is V, sound func(V) bool) {
	t.Parallel()
	clean, other := newStore(t)
	if err := of(other).Write(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	want := all(t, clean, of(other).prefix)
	for _, fault := range []nomadtest.Fault{nomadtest.Failed, nomadtest.DoneButFailed} {
		for n := 1; ; n++ {
			server, s := newStore(t)
			kept := of(s)
			if err := kept.Write(t.Context(), was); err != nil {
				t.Fatal(err)
			}
			before, requests, changed := all(t, server, kept.prefix), 0, false
			server.FailBy(func(r nomadtest.Request) nomadtest.Fault {
				requests++
				if changed = changed || r.Method == http.MethodPut; requests == n {
					return fault
				}
				return nomadtest.None
			})
			err := kept.Write(t.Context(), is)
			server.FailBy(nil)
			if requests < n {
				if n < 6 {
					t.Errorf("only %d requests", requests)
				}
				break // every request has failed once
			}
			after := all(t, server, kept.prefix)
			if v, err := kept.Read(t.Context()); err != nil && !Unreadable(err) || err == nil && !sound(v) {
				t.Errorf("%v at request %d: %v", fault, n, err)
			}
			if err != nil && !changed && len(after) != len(before) {
				t.Errorf("%v at request %d: %d variables of %d are left, and nothing was written", fault, n, len(after), len(before))
			}
			if err := kept.Write(t.Context(), is); err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(want, all(t, server, kept.prefix)) {
				t.Fatalf("%v at request %d: the next write does not repair it", fault, n)
			}
		}
	}
}

// Unchanged variables are not written again, and a variable that cannot be written
// does not keep the others from being written.
func TestOnlyWhatChanges(t *testing.T) {
	server, s := newStore(t)
	var writes []string
	broken := ""
	server.FailBy(func(r nomadtest.Request) nomadtest.Fault {
		if r.Write() {
			writes = append(writes, r.Method+" "+r.Path[strings.LastIndex(r.Path, "/")+1:])
		}
		if r.Write() && broken != "" && strings.HasSuffix(r.Path, broken) {
			return nomadtest.Failed
		}
		return nomadtest.None
	})
	runs := runsOf(40, 1)
	write := func(fails bool) []string {
		writes = nil
		if err := s.RunTimes().Write(t.Context(), runs); (err != nil) != fails {
			t.Error(err)
		}
		slices.Sort(writes)
		return writes
	}
	if got := write(false); len(got) != runTimesShards {
		t.Errorf("the first write writes %v", got)
	}
	if got := write(false); len(got) != 0 {
		t.Errorf("a write of the same data writes %v", got)
	}
	runs[0].Last = 2
	one := write(false)
	if len(one) != 1 {
		t.Errorf("with one changed name it writes %v", one)
	}
	runs = runs[1:]
	if got := write(false); len(got) != 1 {
		t.Errorf("with one name removed it writes %v", got)
	}
	for i := range runs {
		runs[i].Last = 3
	}
	broken = "/0" // the first shard
	if got := write(true); len(slices.Compact(got)) != runTimesShards {
		t.Errorf("beside a variable that cannot be written it writes %v", got)
	}
	broken = ""
	if got := write(false); !slices.Equal(got, []string{"PUT 0"}) {
		t.Errorf("it writes %v, want only the one that could not be written", got)
	}
}

// Unreadable data is left out and reported, and the next write overwrites it. A
// variable that was never written does not exist.
func TestUnreadable(t *testing.T) {
	server, s := newStore(t)
	spoil := func(path string) { server.SetVariable("default", path, items{"json": `{"until": [7`}) }
	check := func(name, path string, read func() (there int, err error), write func() error, others int) {
		t.Helper()
		if there, err := read(); there != 0 || err != nil {
			t.Errorf("%s, before: %d there, %v", name, there, err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		whole, err := read()
		if whole == 0 || err != nil {
			t.Errorf("%s: %d there, %v", name, whole, err)
		}
		spoil(path)
		if there, err := read(); there != others || !Unreadable(err) || !strings.Contains(err.Error(), `"`+path+`"`) && !strings.Contains(err.Error(), "/*") {
			t.Errorf("%s, spoilt: %d there, want %d; %v", name, there, others, err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if there, err := read(); there != whole || err != nil {
			t.Errorf("%s, written again: %d there, %v", name, there, err)
		}
	}
	ctx, k := t.Context(), cluster.JobKey{Namespace: "default", ID: "j"}
	one := func(there bool, err error) (int, error) {
		if there {
			return 1, err
		}
		return 0, err
	}
	d, q, f, h := s.Decision(k), s.Quarantine(), s.Failures(), s.Heartbeat()
	check("decision", d.Path, func() (int, error) { v, err := d.Read(ctx); return one(v.There, err) }, func() error { return d.Write(ctx, recordOf(1)) }, 0)
	check("quarantine", q.Path, func() (int, error) { v, err := q.Read(ctx); return one(v.There, err) }, func() error { return q.Write(ctx, nil) }, 0)
	check("failures", f.Path, func() (int, error) { v, err := f.Read(ctx); return one(v.There, err) }, func() error { return f.Write(ctx, Failures{}) }, 0)
	check("heartbeat", h.Path, func() (int, error) { v, err := h.Read(ctx); return one(v.There, err) }, func() error { return h.Write(ctx, Heartbeat{}) }, 0)
	runs, lab := s.RunTimes(), s.Measurements("lab")
	check("run times", "nomad-pal/history/0", func() (int, error) { rs, err := runs.Read(ctx); return len(rs), err }, func() error { return runs.Write(ctx, runsOf(40, 1)) }, 36)
	check("measurements", "nomad-pal/measurements/lab/0001", func() (int, error) { ms, err := lab.Read(ctx); return len(ms), err }, func() error { return lab.Write(ctx, samplesOf(1024, 1)) }, 512)
	p := profileOf(t, 8, 1)
	check("profile", "nomad-pal/profile/0000", func() (int, error) { v, err := s.Profile().Read(ctx); return one(v != nil, err) }, func() error { return s.Profile().Write(ctx, p) }, 0)
	spoil("nomad-pal/measurements/lab/0000")
	if err := s.Measurements("other").Write(ctx, samplesOf(1, 1)); err != nil {
		t.Fatal(err)
	}
	if ms, err := s.MeasurementsBut("lab").Read(ctx); len(ms) != 1 || err != nil {
		t.Errorf("except those that will be replaced: %d, %v", len(ms), err)
	}
	if ms, err := s.MeasurementsBut("").Read(ctx); len(ms) != 1+512 || !Unreadable(err) {
		t.Errorf("all: %d, %v", len(ms), err)
	}
	server.Fail("", "GET /v1/var/nomad-pal/quarantine", nomadtest.Failed, 1)
	if _, err := q.Read(ctx); err == nil || Unreadable(err) {
		t.Errorf("a variable that was not read is reported as unreadable: %v", err)
	}
}

// A caller who may not read variables gets an error, and not an empty list.
func TestReadOrRefused(t *testing.T) {
	s, _ := newStore(t)
	s.SetTokens(map[string]nomadtest.Token{"may": {Namespaces: map[string][]string{"default": {"variables"}}}, "mayNot": {Nodes: true}})
	for token, may := range map[string]bool{"may": true, "mayNot": false} {
		c, err := nomad.NewClient(s.Config("c", token), "")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := In(c).Profile().Read(t.Context()); p != nil || err != nil {
			t.Errorf("%s: the list is %v, %v, want an empty one", token, p, err)
		}
		if p, err := In(c).Profile().ReadOrRefused(t.Context()); p != nil || (err == nil) != may || !may && !nomad.Refused(err) {
			t.Errorf("%s: %v, %v", token, p, err)
		}
	}
}
