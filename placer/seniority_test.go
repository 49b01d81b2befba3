// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/hostile"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// versionsOf makes versions from words: g<count> gated, p<count> pinned,
// s<count> stopped while gated, t<count> gated over pins, - not kept. Version n
// was submitted at n.
func versionsOf(t *testing.T, words string) map[uint64]*api.Job {
	t.Helper()
	out := map[uint64]*api.Job{}
	for i, w := range strings.Fields(words) {
		if w == "-" {
			continue
		}
		j := benchJob("j", 1)
		var count int
		if _, err := fmt.Sscanf(w[1:], "%d", &count); err != nil {
			t.Fatal(err)
		}
		version, submitted := uint64(i), int64(i)
		j.TaskGroups[0].Count, j.Version, j.SubmitTime = &count, &version, &submitted
		if w[0] == 'p' || w[0] == 't' {
			var err error
			if j, err = rewrite.Pin(j, rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"u"}}}}, rewrite.Racks{}); err != nil {
				t.Fatal(err)
			}
		}
		if w[0] != 'p' {
			j = rewrite.Gate(j)
		}
		if w[0] == 's' {
			yes := true
			j.Stop = &yes
		}
		out[uint64(i)] = j
	}
	return out
}

// Editing a waiting job keeps its place, asking for more does not.
func TestFirstAsked(t *testing.T) {
	for _, tc := range []struct {
		versions string
		since    int64
		taken    bool
		cut      bool
	}{
		{versions: "g2", since: 0},
		{versions: "g2 g2", since: 0},
		{versions: "g2 g2 g1 g1", since: 0},
		{versions: "g2 g3", since: 1},
		{versions: "g4 g2 g3 g3", since: 2},
		{versions: "g2 p2 g2", since: 2}, // it ran in between
		{versions: "g2 s2 g2 g2", since: 2},
		{versions: "g2 - g2 g2", since: 2, cut: true}, // too long ago for Nomad
		{versions: "g2 p2 t2 g2", since: 3, taken: true},
		{versions: "g2 p2 t2 g3", since: 3}, // taken back, then made larger
	} {
		t.Run(tc.versions, func(t *testing.T) {
			vs := versionsOf(t, tc.versions)
			w := firstAsked(vs[uint64(len(strings.Fields(tc.versions))-1)], vs)
			if w.since.UnixNano() != tc.since || w.taken != tc.taken || w.cut != tc.cut {
				t.Errorf("since %d, taken %v, cut %v; want %d, %v, %v", w.since.UnixNano(), w.taken, w.cut, tc.since, tc.taken, tc.cut)
			}
		})
	}
}

// A gang that was stopped has, for the next placer, run and waited as long as
// for the one that stopped it.
func TestRanAndWaitedSurvive(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	r := &Record{Submitted: start, Waited: 10 * time.Minute}
	r.stop(start.Add(70*time.Minute), time.Hour)
	p, job := newPlacer(t), rewrite.Gate(benchJob("j", 1))
	pins := rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: []string{"u"}}}}
	tr := &tracked{Standing: Standing{Job: job, Phase: Waiting, Pins: pins}, record: r}
	j := p.lineJob(tr)
	if j.Attained != time.Hour || j.Done != time.Hour || j.Waited != 10*time.Minute || j.Submitted != since(start) {
		t.Errorf("in line: %+v", j)
	}
	if at := tr.waitsSince(); !at.Equal(start.Add(70 * time.Minute)) {
		t.Errorf("waits since %v", at)
	}
}

// What was learned fits into its variables, whatever the names, and comes back;
// what does not fit is cut evenly.
func TestPastFits(t *testing.T) {
	var history []queue.Past
	for i := range 200 {
		h := queue.Past{Name: fmt.Sprintf("%s-%d", strings.Repeat("n", 100), i), Last: int64(i)}
		for range 64 {
			h.Runs = append(h.Runs, [2]int64{int64(240 * time.Hour), 1024})
		}
		history = append(history, h)
	}
	names := 0
	for _, shard := range pastShardsOf(history) {
		names += len(shard)
		text, err := encodePast(shard)
		if err != nil || len(text) > pastBytes {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
	if names != len(history) {
		t.Errorf("%d names of %d", names, len(history))
	}
	long := make([]queue.Past, 300)
	for i := range long {
		long[i] = queue.Past{Name: strings.Repeat("x", 1000), Runs: [][2]int64{{1, 1}, {2, 2}}}
	}
	if text, err := encodePast(long); err != nil || len(text) > pastBytes {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// A placer remembers a place for longer than Nomad keeps versions; but a job
// that was stopped in between is new, also where nobody saw it stopped.
func TestSeekRemembers(t *testing.T) {
	for _, tc := range []struct {
		versions string
		since    int64
	}{{"- - g2 g2", 0}, {"g2 s2 g2 g2", 2}, {"- g3 g3 g3", 1}} {
		t.Run(tc.versions, func(t *testing.T) {
			vs := versionsOf(t, tc.versions)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var list []*api.Job
				for _, v := range vs {
					list = append(list, v)
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"Versions": list})
			}))
			defer server.Close()
			p := newPlacer(t)
			var err error
			if p.nomad, err = nomad.NewClient(&api.Config{Address: server.URL}, ""); err != nil {
				t.Fatal(err)
			}
			now := vs[3]
			index := uint64(30)
			now.JobModifyIndex = &index
			tr := &tracked{Standing: Standing{Job: now, Phase: Waiting}, place: seniority{index: 20, since: time.Unix(0, 0), gpus: 8}}
			if err := p.seek(t.Context(), tr); err != nil {
				t.Fatal(err)
			}
			if got := tr.submitted().UnixNano(); got != tc.since {
				t.Errorf("since %d, want %d", got, tc.since)
			}
		})
	}
}

// What runs of a job took teaches nothing of jobs that others call the same.
func TestNamesAreOfANamespace(t *testing.T) {
	t.Parallel()
	p := newPlacer(t)
	mine, theirs := hostile.Plain("train", 1, 1, 1), hostile.Plain("train", 1, 1, 1)
	other := "other"
	theirs.Namespace = &other
	line := func(job *api.Job) queue.Job { return p.lineJob(&tracked{Standing: StandingOf(nomad.NewState(), job)}) }
	if a, b := line(mine), line(theirs); a.Name == b.Name || a.Tenant == b.Tenant {
		t.Errorf("names %q and %q of tenants %q and %q", a.Name, b.Name, a.Tenant, b.Tenant)
	}
}
