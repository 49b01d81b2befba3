// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// The agent in the pictures has run for seconds, so the month before is invented. All of it follows
// from one list of runs: the agent's history, who had which GPU, and the allocated GPUs and waiting
// jobs at each minute of the last day.

// kind is a job that is submitted again and again.
type kind struct {
	name, user, class string
	members, gpus     int
	hours             float64
	often             int
}

var kinds = []kind{
	{"llama-eval", "ann", "A", 1, 8, 2.5, 9}, {"vit-large", "ann", "A", 2, 8, 6, 5}, {"gpt-neo-repro", "wei", "B", 3, 8, 5, 4},
	{"moe-pretrain", "wei", "A", 6, 8, 9, 1}, {"resnet-sweep", "bob", "B", 1, 4, 3, 9}, {"rerank-train", "bob", "D", 1, 4, 2, 6},
	{"asr-tune", "zoe", "C", 1, 8, 4, 6}, {"speech-lm", "zoe", "C", 2, 8, 7, 3}, {"tabular-ft", "", "D", 1, 2, 1.5, 6},
}

// invented is a run, with its allocations.
type invented struct {
	palapi.Run
	kind
	allocs []accounting.Alloc
}

const inventedStep = 15 * time.Minute

// inventedMonth returns runs on 16 nodes, from 28 days before now until an hour before now. A
// simple queue that starts whatever fits determines their times.
func inventedMonth(now time.Time) (runs []*invented) {
	r := rand.New(rand.NewPCG(50, 1))
	taken := map[string]time.Time{} // until when each GPU is taken
	taken[gpuID(12, 3)] = now.Add(time.Hour)
	var waiting []*invented
	end := now.Add(-57 * time.Minute)
	// All runs have ended when the pictured hour begins.
	for at := now.AddDate(0, 0, -28).Truncate(inventedStep); at.Before(end); at = at.Add(inventedStep) {
		for range arrivals(r, at) {
			waiting = append(waiting, submitted(r, at))
		}
		waiting = slices.DeleteFunc(waiting, func(w *invented) bool {
			if !w.placed(r, at, end, taken) {
				return false
			}
			runs = append(runs, w)
			return true
		})
	}
	slices.SortFunc(runs, func(a, b *invented) int { return a.Submitted.Compare(b.Submitted) })
	return runs
}

// arrivals is the number of jobs submitted in a step: more by day, fewer at
// weekends.
func arrivals(r *rand.Rand, at time.Time) (n int) {
	rate := 0.5 + 0.45*math.Cos((float64(at.Hour())-13)/24*2*math.Pi)
	if at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
		rate *= 0.55
	}
	for range 3 {
		if r.Float64() < rate/3.8 {
			n++
		}
	}
	return n
}

func submitted(r *rand.Rand, at time.Time) *invented {
	var all []kind
	for _, k := range kinds {
		all = append(all, slices.Repeat([]kind{k}, k.often)...)
	}
	k := all[r.IntN(len(all))]
	at = at.Add(time.Duration(r.IntN(600)) * time.Second)
	return &invented{kind: k, Run: palapi.Run{Namespace: "default", Job: k.name, User: k.user, Class: k.class, Model: "NVIDIA H200", GPUs: k.members * k.gpus,
		MemberGPUs: k.gpus, Preemptible: k.user == "bob", Submitted: at, Family: k.name}}
}

// placed reports whether enough GPUs are free now for a run. If so, it takes them
// and invents the run's times and outcome.
func (w *invented) placed(r *rand.Rand, at, last time.Time, taken map[string]time.Time) bool {
	var on [][]string
	for n := range 16 {
		var free []string
		for k := range gpusPerNode {
			if id := gpuID(n, k); !taken[id].After(at) && len(free) < w.kind.gpus {
				free = append(free, id)
			}
		}
		if len(free) == w.kind.gpus && len(on) < w.members {
			on = append(on, free)
		}
	}
	if len(on) < w.members {
		return false
	}
	apart := 1.0
	if w.members > 1 {
		apart = 1.7 // the agent's default
	}
	w.Predicted = apart * (0.93 + 0.12*r.Float64())
	w.Packed = w.Predicted * (1 + 0.13*r.Float64())
	w.Any = w.Packed * (1 + 0.06*r.Float64())
	w.Started = w.Submitted.Add(20 * time.Second)
	if w.Started.Before(at) {
		w.Started = at.Add(time.Duration(r.IntN(300)) * time.Second)
	}
	w.Whole, w.Waited, w.State = w.Started.Add(8*time.Second), palapi.Seconds(w.Started.Sub(w.Submitted)), palapi.RunComplete
	w.Ended = w.Started.Add(time.Duration(w.hours * (0.75 + 0.5*r.Float64()) * float64(time.Hour)))
	switch r.IntN(28) {
	case 0:
		w.State, w.Reason, w.Ended = palapi.RunFailed, `given up after 3 tries: task "work" ended with exit code 1; fix the job and run it again`, w.Started.Add(w.Ended.Sub(w.Started)/9)
	case 1:
		w.State, w.Reason = palapi.RunStopped, "stopped by its author"
	case 2, 3:
		if w.Preemptible {
			w.Stops = queue.Stops{Stops: 1, LostGPUSeconds: float64(w.Run.GPUs) * 240}
		} else if w.members > 1 {
			w.Stops = queue.Stops{SavedSeconds: 4200 + 3600*r.Float64()}
		}
	}
	if w.Ended.After(last) {
		w.Ended = last.Add(time.Duration(r.IntN(100)) * time.Second)
	}
	status := map[palapi.RunState]string{palapi.RunFailed: "failed"}[w.State]
	for n, gpus := range on {
		for _, id := range gpus {
			taken[id] = w.Ended.Add(time.Minute)
		}
		var node int
		_, _ = fmt.Sscanf(gpus[0], "GPU-%05x", &node)
		w.allocs = append(w.allocs, accounting.Alloc{ID: fmt.Sprintf("%s-%d-%d", w.name, w.Submitted.UnixMilli(), n), Namespace: "default", Job: w.name, Submitted: w.Submitted, User: w.user, Class: w.class,
			Node: fmt.Sprintf("gpu-%05d", node), Model: w.Model, GPUs: gpus, Held: float64(len(gpus)), From: w.Started, To: w.Ended, Status: max(status, "complete"), Vain: w.Whole, Predicted: w.Predicted, Packed: w.Packed, Any: w.Any})
	}
	return true
}

// kept writes the month into an agent's history.
func kept(t *testing.T, file string, runs []*invented) {
	t.Helper()
	db, _, err := accounting.Open(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b accounting.Batch
	for _, w := range runs {
		b.Runs, b.Allocs = append(b.Runs, w.Run), append(b.Allocs, w.allocs...)
		if a := w.allocs[0]; w.user == "" || w.name == "llama-eval" && a.From.Day()%3 == 0 {
			b.Idle = append(b.Idle, accounting.Idle{Alloc: a.ID, From: a.To.Add(-25 * time.Minute), To: a.To, GPUs: a.Held})
		}
	}
	if err := db.Write(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

// past shows what the agent did within seconds as if it had taken the last hour, and an invented
// month before it.
type past struct {
	t          *testing.T
	w          *world
	from, to   time.Time // when the agent did that
	now        time.Time
	runs       []*invented
	allocated  int // GPUs allocated now
	waits      []palapi.Run
	runsAtOnce []palapi.Run
}

const pictured = 55 * time.Minute

func newPast(t *testing.T, w *world, from time.Time, runs []*invented) *past {
	now := time.Now()
	p := &past{t: t, w: w, from: from, to: now, now: now, runs: runs}
	var gpus []struct{ State string }
	var all []palapi.Run
	p.read("/v1/gpus", &gpus)
	p.read("/v1/runs?limit=50", &all)
	for _, g := range gpus {
		if g.State == "allocated" {
			p.allocated++
		}
	}
	for _, r := range all {
		switch {
		case r.State == palapi.RunRunning:
			p.runsAtOnce = append(p.runsAtOnce, r)
		case r.State == palapi.RunPending && r.GPUs > 16:
			p.waits = append(p.waits, r)
		}
	}
	return p
}

func (p *past) read(path string, v any) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.w.get(p.t, path)), v); err != nil {
		p.t.Fatal(err)
	}
}

// at is the time that the page shows for something that happened at t.
func (p *past) at(t time.Time) time.Time {
	if t.Before(p.from) || t.After(p.to) {
		return t
	}
	return p.now.Add(-pictured + time.Duration(float64(t.Sub(p.from))/float64(p.to.Sub(p.from))*float64(pictured-3*time.Minute)))
}

var (
	stamped = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)
	ago     = regexp.MustCompile(`(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC( \(\w+ ago\))?`)
	waited  = regexp.MustCompile(`has waited for \w+`)
	since   = regexp.MustCompile(`"submitted": ?"([^"]+)"`)
)

// shown replaces the times in an answer by those that the page shows.
func (p *past) shown(text string) string {
	exact := map[string]time.Time{} // full times, by their texts in sentences, which have seconds only
	for _, s := range stamped.FindAllString(text, -1) {
		if at, err := time.Parse(time.RFC3339Nano, strings.Trim(s, `"`)); err == nil {
			exact[at.UTC().Format(time.DateTime)] = at
		}
	}
	text = stamped.ReplaceAllStringFunc(text, func(s string) string {
		at, err := time.Parse(time.RFC3339Nano, strings.Trim(s, `"`))
		if err != nil {
			return s
		}
		return strconv.Quote(p.at(at).UTC().Format(time.RFC3339Nano))
	})
	minutes := func(at time.Time) string { return fmt.Sprintf("%.0fm", time.Since(at).Minutes()) }
	text = ago.ReplaceAllStringFunc(text, func(s string) string {
		m := ago.FindStringSubmatch(s)
		at, err := time.Parse(time.DateTime, m[1])
		if err != nil {
			return s
		}
		if known, ok := exact[m[1]]; ok {
			at = known
		}
		at = p.at(at)
		if m[2] == "" {
			return at.Format(time.DateTime) + " UTC"
		}
		return fmt.Sprintf("%s UTC (%s ago)", at.Format(time.DateTime), minutes(at))
	})
	if m := since.FindStringSubmatch(text); m != nil {
		if at, err := time.Parse(time.RFC3339Nano, m[1]); err == nil {
			text = waited.ReplaceAllString(text, "has waited for "+minutes(at))
		}
	}
	return text
}

// show changes the agent's answers on their way through a proxy.
func (p *past) show(r *http.Response) error {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/") || !strings.HasPrefix(r.Request.URL.Path, "/v1/") {
		return nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	told := []byte(p.shown(string(text)))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(told)), int64(len(told))
	r.Header.Set("Content-Length", strconv.Itoa(len(told)))
	return nil
}

// samples returns the samples of the last day.
func (p *past) samples() (all []map[string]any) {
	for m := 24*60 - 1; m >= 1; m-- {
		at := p.now.Add(-time.Duration(m) * time.Minute)
		on, waiting, requested, running, placed, chosen, packed := 0, 0, 0, 0, 0, 0.0, 0.0
		add := func(r palapi.Run, start, end time.Time) {
			switch {
			case at.Before(r.Submitted) || !at.Before(end):
				return
			case at.Before(start):
				waiting, requested = waiting+1, requested+r.GPUs
				return
			case start.After(at.Add(-time.Minute)):
				placed++
			}
			on, running = on+r.GPUs, running+1
			chosen, packed = chosen+r.Predicted*float64(r.GPUs), packed+r.Packed*float64(r.GPUs)
		}
		for _, w := range p.runs {
			add(w.Run, w.Started, w.Ended)
		}
		later := p.now.Add(time.Hour)
		for _, r := range p.runsAtOnce {
			r.Submitted = p.at(r.Submitted)
			add(r, p.at(r.Started), later)
		}
		for _, r := range p.waits {
			r.Submitted = p.at(r.Submitted)
			add(r, later, later)
		}
		on = min(on, max(p.allocated, on-8)) // one GPU of a job is unhealthy, so it does not count as allocated
		sample := map[string]any{"at": at.UTC(), "gpus": 128, "free": 127 - on, "allocated": on, "waiting": waiting, "requested": requested, "running": running, "placed": placed,
			"unhealthy": 1, "quarantined": 0, "outliers": map[string]int{"B": 2}}
		if m < 10 {
			sample["unhealthy"] = 2
		}
		if on > 0 {
			sample["slowdown_chosen"], sample["slowdown_packed"], sample["slowdown_gpus"] = chosen/float64(on), packed/float64(on), on
		}
		all = append(all, sample)
	}
	return all
}

// uses answers the question which jobs had GPUs during the last day.
func (p *past) uses(r *http.Request) any {
	var all []map[string]any
	if err := json.Unmarshal([]byte(p.shown(p.w.get(p.t, "/v1/uses?"+r.URL.RawQuery))), &all); err != nil {
		p.t.Error(err)
	}
	q := r.URL.Query()
	for _, w := range p.runs {
		for _, a := range w.allocs {
			if a.To.After(p.now.Add(-24*time.Hour)) && (slices.Contains(q["node"], a.Node) || q.Get("job") == w.name) {
				all = append(all, map[string]any{"namespace": "default", "job": w.name, "gpus": a.GPUs, "from": a.From, "to": a.To})
			}
		}
	}
	return all
}

func gpuID(n, k int) string {
	return fmt.Sprintf("GPU-%05x-%d-4a1c-9e77-c0ffee%06x", n, k, n*gpusPerNode+k)
}
