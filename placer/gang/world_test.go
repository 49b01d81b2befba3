// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// fakeWorld is a World whose answers the test sets.
type fakeWorld struct {
	state    *cluster.State
	now      time.Time
	retries  int
	failure  *palapi.Failure
	lost     string // the id of a node that is lost
	holds    []int
	reserved bool
	others   []string // GPUs that other jobs hold
	room     Room
	roomErr  error
	// unanswered are the starts with unknown outcome, by the version over which they were sent.
	unanswered map[uint64][]Start
}

func newFakeWorld() *fakeWorld {
	return &fakeWorld{state: cluster.NewState(), now: time.Unix(1000, 0), retries: 2, unanswered: map[uint64][]Start{}}
}

// noteUnanswered records an unanswered start, as the placer does before it delivers the failure.
func (w *fakeWorld) noteUnanswered(g *Lifecycle, of Effect) {
	if c, ok := of.(Commit); ok {
		w.unanswered[*g.Job.JobModifyIndex] = append(w.unanswered[*g.Job.JobModifyIndex], c.Start)
	}
}

func (w *fakeWorld) Unanswered(version *api.Job) []Start {
	return w.unanswered[*version.JobModifyIndex]
}

func (w *fakeWorld) NodeChanges() uint64 { return 0 }

func (w *fakeWorld) Now() time.Time                           { return w.now }
func (w *fakeWorld) ReadyTimeout() time.Duration              { return 5 * time.Second }
func (w *fakeWorld) Retries() int                             { return w.retries }
func (w *fakeWorld) RestartCost() time.Duration               { return time.Minute }
func (w *fakeWorld) Policy() string                           { return "pal" }
func (w *fakeWorld) Allocs(k cluster.JobKey) []*cluster.Alloc { return w.state.AllocsOf(k) }
func (w *fakeWorld) LastFailure(*api.Job) *palapi.Failure     { return w.failure }
func (w *fakeWorld) NodeLost(a *cluster.Alloc) bool {
	return a.Client == api.AllocClientStatusLost || w.lost != "" && a.Node == w.lost
}
func (w *fakeWorld) Holds(cluster.JobKey) []int              { return w.holds }
func (w *fakeWorld) Forbids(*api.Job, []*cluster.Alloc) bool { return false }
func (w *fakeWorld) Reserved(cluster.JobKey) bool            { return w.reserved }
func (w *fakeWorld) OthersHold(_ cluster.JobKey, gpus []string) bool {
	return slices.ContainsFunc(gpus, func(id string) bool { return slices.Contains(w.others, id) })
}
func (w *fakeWorld) Resized(g *Lifecycle, to pal.Placement) (rewrite.Pins, error) {
	p := g.Pins
	p.Groups = slices.Clone(p.Groups)
	p.Groups[0].Count = len(to.Members)
	return p, w.roomErr
}
func (w *fakeWorld) Describe(pal.Gang, pal.Placement) *pal.Choice { return &pal.Choice{} }

func (w *fakeWorld) GPUIDs(gpus []int) []string {
	var ids []string
	for _, g := range gpus {
		ids = append(ids, fmt.Sprint("g", g))
	}
	return ids
}

func (w *fakeWorld) Request(o Observed) (request.Request, error) {
	r := request.Request{Key: o.Key, Job: o.Job, Modelled: true, Gang: pal.Gang{MemberSets: []pal.MemberSet{{Members: 2, GPUs: 1}}}}
	if e, ok := rewrite.ElasticOf(o.Job); ok {
		r.Elastic, r.Gang.MemberSets = &e, []pal.MemberSet{{Members: rewrite.Members(o.Job.TaskGroups[0]), GPUs: 1}}
	}
	return r, nil
}

func (w *fakeWorld) Running(_ request.Request, gpus []int) pal.Placement {
	return pal.Placement{Members: make([]pal.Member, len(gpus)), Penalty: 1, PMScore: 1}
}

func (w *fakeWorld) Pin(job *api.Job, p rewrite.Pins) (*api.Job, error) {
	return rewrite.Pin(job, p, rewrite.Racks{})
}

func nameOf(v any) string {
	name := fmt.Sprintf("%T", v)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// plainJob is a gang of two members with one GPU each; index is also its version and time.
func plainJob(id string, index uint64) *api.Job {
	ns, kind, group, status := "default", "batch", "g", "pending"
	count, gpus, priority, submitted := 2, uint64(1), 50, int64(index)
	return &api.Job{
		ID: &id, Name: &id, Namespace: &ns, Type: &kind, Status: &status, Priority: &priority,
		Version: &index, ModifyIndex: &index, JobModifyIndex: &index, CreateIndex: &index, SubmitTime: &submitted,
		TaskGroups: []*api.TaskGroup{{Name: &group, Count: &count, Tasks: []*api.Task{{
			Name: "t", Driver: "raw_exec", Resources: &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}}},
		}}}},
	}
}

// somePins pin group g to these GPUs of node n.
func somePins(gpus ...string) rewrite.Pins {
	return rewrite.Pins{Mode: rewrite.ModeGPU, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, GPUs: gpus}}}
}
