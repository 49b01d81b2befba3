// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// The members of an elastic gang keep running while other members join and leave. Nomad replaces a
// member if its device block changes, so the device block must stay the same. As for services, the
// pins name nodes and a highest variability class, which stays the same until the gang is placed
// again. The group's count is the number of members.

func elasticOf(job *api.Job) *rewrite.Elastic {
	if e, ok := rewrite.ElasticOf(job); ok {
		return &e
	}
	return nil
}

// membersOf returns how many members a group should have: the maximum for a waiting elastic gang.
func (r Request) membersOf(g *api.TaskGroup) int {
	_, pinned := rewrite.Pinned(r.Job)
	if r.Elastic != nil && (rewrite.Gated(r.Job) || !pinned) && *g.Name == r.Elastic.Group {
		return r.Elastic.Most
	}
	return rewrite.Members(g)
}

// elasticPins sets the count of an elastic gang's pins to the placement's number of members, and
// allows all variability classes below the first class that contains an outlier. If the gang itself
// got an outlier, the pins allow all classes.
func (v *View) elasticPins(r Request, p pal.Placement, pins *rewrite.Pins) {
	pins.Groups[0].Count = len(p.Members)
	limit := pal.PMScore(v.opts.OutlierThreshold)
	switch {
	case limit == 0 || pins.Ceiling == 0:
		return
	case p.PMScore > limit:
		pins.Class, pins.Ceiling = "", 0
		return
	}
	sound, barred := 0, math.MaxInt
	for u := range v.Cluster.NumGPUs() {
		c := v.classOfGPU(u, r.Gang.Class)
		if !v.outlier(u, r.Gang.Class) {
			sound = max(sound, c)
		} else if c != 0 {
			barred = min(barred, c)
		}
	}
	pins.Ceiling = max(pins.Ceiling, min(sound, barred-1))
}

// Resized returns the pins that give a running elastic gang the members of a placement. Resized
// returns an error if the new pins would restart running members.
func (v *View) Resized(r Request, old rewrite.Pins, to pal.Placement) (rewrite.Pins, error) {
	was, _ := old.Of(r.Elastic.Group)
	is := rewrite.GroupPins{Group: was.Group, GPUs: was.GPUs, Count: len(to.Members)}
	for _, a := range v.State.ByJob[r.Key] {
		if a.Group == was.Group && a.Member() {
			is.Nodes = append(is.Nodes, a.Node)
		}
	}
	if is.Count > was.Count {
		more := v.Pins(r, to).Groups[0]
		if err := v.sameDevices(old, was.GPUs, more.GPUs, to); err != nil {
			return old, err
		}
		is.Nodes = append(is.Nodes, more.Nodes...)
	}
	slices.Sort(is.Nodes)
	is.Nodes = slices.Compact(is.Nodes)
	old.Groups = []rewrite.GroupPins{is}
	return old, nil
}

// sameDevices returns an error if the device pins of old do not allow the placement's GPUs. was
// contains the GPUs that old names. named contains the GPUs that new pins would name because other
// GPUs of the same nodes are excluded.
func (v *View) sameDevices(old rewrite.Pins, was, named []string, to pal.Placement) error {
	for _, m := range to.Members {
		for _, u := range m.GPUs {
			id := v.Cluster.GPU(u).ID
			c := publishedClass(v.Ledger, m.Group, id, old.Class)
			if old.Ceiling != 0 && (c == 0 || c > old.Ceiling) {
				return fmt.Errorf("GPU %s is of class %d, but the gang's pins allow at most class %d", id, c, old.Ceiling)
			}
			if (was != nil || named != nil) && !slices.Contains(was, id) {
				return fmt.Errorf("the gang's pins do not list GPU %s; pins list single GPUs if other GPUs of the same nodes are or were excluded", id)
			}
		}
	}
	return nil
}

// inOrder returns the members of a running elastic gang and the owned GPUs that they hold. The
// members are in the order of their numbers, because Nomad stops the members with the highest
// numbers first. Members without an allocation come last.
func (v *View) inOrder(r Request, owned []int) []pal.Member {
	var ms []pal.Member
	left := slices.Clone(owned)
	as := slices.DeleteFunc(v.State.AllocsOf(r.Key), func(a *cluster.Alloc) bool { return a.Group != r.Elastic.Group || !a.Live() })
	slices.SortFunc(as, func(a, b *cluster.Alloc) int { return cluster.MemberNumber(a.Name) - cluster.MemberNumber(b.Name) })
	for _, a := range as {
		m := pal.Member{}
		for _, id := range a.GPUs {
			i := slices.IndexFunc(left, func(u int) bool { return v.Cluster.GPU(u).ID == id })
			if i >= 0 {
				m.GPUs, m.Group = append(m.GPUs, left[i]), v.Cluster.GroupOf(left[i])
				left = slices.Delete(left, i, i+1)
			}
		}
		if len(m.GPUs) > 0 {
			slices.Sort(m.GPUs)
			ms = append(ms, m)
		}
	}
	return append(ms, v.dealt(r, left)...)
}
