// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

func recordOf(members int) gang.Record {
	c := &pal.Choice{}
	for i := range members {
		c.Members = append(c.Members, pal.ChosenMember{
			Group: "workers", Node: fmt.Sprintf("node-%d", i), NodeID: strings.Repeat("f", 36), Device: "nvidia/gpu/NVIDIA H200",
			GPUs: []pal.ChosenGPU{{ID: "GPU-" + strings.Repeat("e", 36), PMScore: 1.003, Class: 2}},
		})
	}
	packed, predicted := *c, *c
	return gang.Record{Namespace: "default", Job: "j", Predicted: &predicted, Decision: pal.Decision{Chosen: c, Packed: &packed}}
}

// A decision on any number of GPUs fits into a variable, and says how many
// members it omits.
func TestRecordFits(t *testing.T) {
	_, s := newStore(t)
	for _, members := range []int{1, 100, 3000} {
		was := recordOf(members)
		v := s.Decision(cluster.JobKey{Namespace: "default", ID: "j"})
		if err := v.Write(t.Context(), was); err != nil {
			t.Fatal(err)
		}
		is, err := v.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(is.Of.Decision.Chosen.Members) + is.Of.MembersOmitted; got != members {
			t.Errorf("%d members: %d kept and %d reported as omitted", members, len(is.Of.Decision.Chosen.Members), is.Of.MembersOmitted)
		}
		if p := is.Of.Predicted; is.Of.MembersOmitted > 0 && len(p.Members) > 0 {
			t.Errorf("%d members: %d predicted ones are kept, and %d actual ones are not", members, len(p.Members), is.Of.MembersOmitted)
		}
		if len(is.Of.Decision.Chosen.Members) == 0 {
			t.Errorf("none of %d members are kept", members)
		}
		if !cmp.Equal(was, recordOf(members)) {
			t.Errorf("the record itself was cut to %d members", len(was.Decision.Chosen.Members))
		}
		if members == 1 && !cmp.Equal(was, is.Of) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(was, is.Of))
		}
	}
}

// Any decision's record fits into a variable, or the error says that it does
// not.
func TestRecordOfAnySize(t *testing.T) {
	_, s := newStore(t)
	long, entries := strings.Repeat("x", 100_000), make([]pal.Entry, 5000)
	v := s.Decision(cluster.JobKey{Namespace: "default", ID: "j"})
	for name, r := range map[string]gang.Record{
		"a walk":   {Decision: pal.Decision{Walk: entries}},
		"a text":   {Decision: pal.Decision{Reason: reason.Unread(long)}},
		"stopped":  {StoppedWhy: reason.Reason{Kind: reason.NotWhole}.Over(reason.Unread(long))},
		"given up": {GivenUp: reason.Unread(long)},
		"all":      {StoppedWhy: reason.Unread(long), GivenUp: reason.Unread(long), Decision: pal.Decision{Walk: entries, Reason: reason.Unread(long), Chosen: &pal.Choice{Members: make([]pal.ChosenMember, 3000)}}},
	} {
		if err := v.Write(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := v.Write(t.Context(), gang.Record{Decision: pal.Decision{Gang: long}})
	if want := `writing variable "nomad-pal/decisions/default/j": it cannot be stored: the content has 1`; !errors.Is(err, ErrNotStorable) || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "bytes, but a variable can hold only 61440") {
		t.Errorf("a decision from which nothing can be left out: %v", err)
	}
	if err := v.Write(t.Context(), gang.Record{Decision: pal.Decision{Chosen: &pal.Choice{Cost: math.NaN()}}}); !errors.Is(err, ErrNotStorable) {
		t.Errorf("no number: %v", err)
	}
}

// Run times fit into their variables, whatever the names, and can be read back.
// If they do not fit, each name loses the same share.
func TestRunTimesFit(t *testing.T) {
	_, s := newStore(t)
	var runs []queue.RunTimes
	for i := range 200 {
		h := queue.RunTimes{Name: fmt.Sprintf("%s-%d", strings.Repeat("n", 100), i), Last: int64(i)}
		for range 64 {
			h.Runs = append(h.Runs, queue.Run{int64(240 * time.Hour), 1024})
		}
		runs = append(runs, h)
	}
	store := func(runs []queue.RunTimes) []queue.RunTimes {
		t.Helper()
		if err := s.RunTimes().Write(t.Context(), runs); err != nil {
			t.Fatal(err)
		}
		is, err := s.RunTimes().Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	byName := cmpopts.SortSlices(func(a, b queue.RunTimes) bool { return a.Name < b.Name })
	if d := cmp.Diff(runs, store(runs), byName); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range runs {
		for range 10 {
			runs[i].Runs = append(runs[i].Runs, runs[i].Runs[:64]...)
		}
	}
	is := store(runs)
	for _, h := range is {
		if len(h.Runs) < 32 || len(h.Runs) > 400 {
			t.Errorf("%d of the %d runs of %s are left", len(h.Runs), len(runs[0].Runs), h.Name)
		}
	}
	if len(is) != len(runs) {
		t.Errorf("%d names of %d", len(is), len(runs))
	}
	long := make([]queue.RunTimes, 300)
	for i := range long {
		long[i] = queue.RunTimes{Name: strings.Repeat("x", 1000), Runs: []queue.Run{{1, 1}, {2, 2}}}
	}
	store(long)
}

// Many measurements are split over several well-filled variables, and read back in
// order; without measurements there is no variable.
func TestMeasurementsFit(t *testing.T) {
	server, s := newStore(t)
	long := samplesOf(3000, 1)
	for i := range long {
		long[i].Key = strings.Repeat("k", 300)
	}
	for _, samples := range [][]profile.Sample{samplesOf(3000, 1), long, nil} {
		lab := s.Measurements("lab")
		if err := lab.Write(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		is, err := lab.Read(t.Context())
		if err != nil || !cmp.Equal(samples, is, cmpopts.EquateEmpty()) {
			t.Errorf("%d measurements of %d: %v", len(is), len(samples), err)
		}
		bytes, shards := 0, all(t, server, lab.prefix)
		for _, shard := range shards {
			bytes += len(shard["csv"])
		}
		if n, least := len(shards), (bytes+Bytes-1)/Bytes; n < least || n > 2*least {
			t.Errorf("%d bytes are in %d variables, want %d to %d", bytes, n, least, 2*least)
		}
	}
	large := samplesOf(1, 1)
	large[0].Key = strings.Repeat("k", Bytes)
	if err := s.Measurements("lab").Write(t.Context(), large); !errors.Is(err, ErrNotStorable) {
		t.Errorf("a row that is too large: %v", err)
	}
}

// Data of each kind is read back unchanged.
func TestRoundTrip(t *testing.T) {
	text, word := rapid.String(), rapid.StringMatching(`[A-Za-z0-9.:/-]{1,40}`)
	at := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), 7).UTC() })
	share := rapid.Float64Range(0, 2)
	for name, once := range map[string]func(t *rapid.T, s Store){
		"decision": func(t *rapid.T, s Store) {
			k := cluster.JobKey{Namespace: text.Draw(t, "namespace"), ID: text.Draw(t, "id")}
			r := recordOf(rapid.IntRange(0, 50).Draw(t, "members"))
			r.Namespace, r.Job, r.Note, r.Submitted, r.Attained = k.Namespace, k.ID, gang.Note(text.Draw(t, "note")), at.Draw(t, "submitted"), time.Duration(rapid.Int64().Draw(t, "attained"))
			same(t, s.Decision(k), r)
		},
		"failures": func(t *rapid.T, s Store) {
			same(t, s.Failures(), Failures{rapid.SliceOfN(rapid.Custom(func(t *rapid.T) palapi.Failure {
				return palapi.Failure{At: at.Draw(t, "at"), Index: rapid.Uint64().Draw(t, "index"), Job: text.Draw(t, "job"), GPUs: rapid.SliceOfN(text, 0, 8).Draw(t, "gpus"), Reason: text.Draw(t, "reason")}
			}), 0, 20).Draw(t, "failures"), rapid.Uint64().Draw(t, "dropped")})
		},
		"quarantine": func(t *rapid.T, s Store) {
			same(t, s.Quarantine(), rapid.MapOfN(text, rapid.Custom(func(t *rapid.T) palapi.Quarantine {
				return palapi.Quarantine{Until: at.Draw(t, "until"), Strikes: rapid.Int().Draw(t, "strikes"), Reason: text.Draw(t, "reason"), ByJobs: rapid.Bool().Draw(t, "by jobs")}
			}), 0, 20).Draw(t, "quarantine"))
		},
		"heartbeat": func(t *rapid.T, s Store) {
			same(t, s.Heartbeat(), Heartbeat{Agent: text.Draw(t, "agent"), Address: text.Draw(t, "address"), Since: at.Draw(t, "since"), Trouble: text.Draw(t, "trouble")})
		},
		"run times": func(t *rapid.T, s Store) {
			sameShards(t, s.RunTimes(), rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) queue.RunTimes {
				return queue.RunTimes{Name: text.Draw(t, "name"), Tenant: text.Draw(t, "tenant"), Last: rapid.Int64().Draw(t, "last"),
					Runs: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) queue.Run { return queue.Run{rapid.Int64().Draw(t, "took"), 8} }), 1, 64).Draw(t, "runs")}
			}), 0, 60, func(p queue.RunTimes) string { return p.Name }).Draw(t, "run times"), cmpopts.SortSlices(func(a, b queue.RunTimes) bool { return a.Name < b.Name }))
		},
		"measurements": func(t *rapid.T, s Store) {
			sameShards(t, s.Measurements("lab"), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) profile.Sample {
				return profile.Sample{GPU: word.Draw(t, "gpu"), App: pal.AppClass(word.Draw(t, "app")), Model: word.Draw(t, "model") + " 80GB, \"x\"", Key: word.Draw(t, "key"),
					Time: rapid.Float64Range(1e-9, math.MaxFloat64).Draw(t, "time"), Noise: share.Draw(t, "noise")}
			}), 0, 1200).Draw(t, "samples"))
		},
	} {
		t.Run(name, func(t *testing.T) { // not parallel: rapid's generators are shared, and not safe for concurrent use
			_, s := newStore(t)
			rapid.Check(t, func(t *rapid.T) { once(t, s) })
		})
	}
	t.Run("profile", func(t *testing.T) {
		t.Parallel()
		_, s := newStore(t)
		for _, gpus := range []int{8000, 1, 3000} {
			p := profileOf(t, gpus, 1)
			if err := s.Profile().Write(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if is, err := s.Profile().Read(t.Context()); err != nil || !cmp.Equal(p.Encode(), is.Encode()) {
				t.Errorf("%d GPUs: %v", gpus, err)
			}
		}
	})
}

func same[T any](t *rapid.T, v Variable[T], want T) {
	t.Helper()
	if err := v.Write(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, err := v.Read(t.Context())
	if d := cmp.Diff(want, got.Of, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, d)
	}
}

func sameShards[T, E any](t *rapid.T, v Shards[T, []E], want []E, how ...cmp.Option) {
	t.Helper()
	if err := v.Write(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, err := v.Read(t.Context())
	if d := cmp.Diff(want, got, append(how, cmpopts.EquateEmpty())...); d != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, d)
	}
}

// Any content of a variable is either read or [Unreadable], and what is read
// stays the same after it is written again.
func FuzzAnyContent(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", "[]", `{"until": [7`, `[{"name":"default/j","last":1,"runs":[[1,2]]}]`, "gpu,app,time\nG1,A,1\n",
		"gpu,app,time,model\n\"#G1\",A,1,\"a\rb\"\n", `{"GPU-1": {"until": "2026-01-01T00:00:00Z", "strikes": 2}}`} {
		f.Add(seed, "7")
	}
	f.Fuzz(func(t *testing.T, text, more string) {
		_, s := newStore(t)
		k := cluster.JobKey{Namespace: "default", ID: "j"}
		d, q, fs, h := s.Decision(k), s.Quarantine(), s.Failures(), s.Heartbeat()
		again(t, d.Path, items{"decision": text}, s, varRead(d), d.Write)
		again(t, q.Path, items{"json": text}, s, varRead(q), q.Write)
		again(t, fs.Path, items{"json": text, "dropped": more}, s, varRead(fs), fs.Write)
		again(t, h.Path, items{"json": text}, s, varRead(h), h.Write)
		again(t, "nomad-pal/history/3", items{"runs": text}, s, s.RunTimes().Read, s.RunTimes().Write)
		again(t, measurementsPrefix+"/lab/0000", items{"csv": text}, s, s.Measurements("lab").Read, s.Measurements("lab").Write)
		again(t, "nomad-pal/profile/0000", items{"data": text, "of": "1", "shard": "0", "sha256": more, "version": more}, s, s.Profile().Read, s.Profile().Write)
	})
}

func varRead[T any](v Variable[T]) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		is, err := v.Read(ctx)
		return is.Of, err
	}
}

func again[V any](t *testing.T, path string, is items, s Store, read func(context.Context) (V, error), write func(context.Context, V) error) {
	t.Helper()
	if err := s.nomad.WriteVariable(t.Context(), path, maps.Clone(is)); err != nil {
		return // too large for Nomad
	}
	v, err := read(t.Context())
	if err != nil {
		if !Unreadable(err) {
			t.Fatalf("%q: %v", is, err)
		}
		return
	}
	if err := write(t.Context(), v); errors.Is(err, ErrNotStorable) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	first, err := read(t.Context())
	if err != nil {
		t.Fatalf("%q, written again: %v", is, err)
	}
	if err := write(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(v, first, cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.EquateApprox(1e-5, 0), cmpopts.IgnoreUnexported(profile.Profile{})); d != "" && len(fmt.Sprint(is)) < 50_000 {
		t.Fatalf("%q: (-read +written):\n%s", is, d)
	}
	second, err := read(t.Context())
	if d := cmp.Diff(first, second, cmpopts.EquateNaNs(), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(profile.Profile{})); d != "" || err != nil {
		t.Fatalf("%q: %v (-first +second):\n%s", is, err, d)
	}
}

// docs/reference/variables.md names each variable.
func TestVariablesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/variables.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, path := range regexp.MustCompile(`"nomad-pal/([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.Contains(string(page), "| `nomad-pal/"+path[1]) {
				t.Errorf("the page does not name nomad-pal/%s (%s)", path[1], name)
			}
		}
	}
	if found < 9 {
		t.Errorf("%d variables in the source", found)
	}
}
