// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// mostLeaving is the maximum number of sentences about a gang with many nodes, and also the maximum
// number of GPUs in one sentence.
const mostLeaving = 3

// Leaving describes problems of the job's nodes and GPUs: drained nodes, disconnected nodes, and
// unhealthy GPUs. Each sentence describes what happens to the members on these nodes, and when. If
// several nodes have the same problem, one sentence describes them all.
func (m *Model) Leaving(st gang.Observed) (said []reason.Reason) {
	type sentence struct{ is, what string }
	nodes := map[sentence][]string{}
	gpus := map[fault][]string{}
	for _, a := range st.Members {
		n := m.State.Nodes[a.Node]
		if n == nil {
			continue
		}
		s := sentence{}
		switch {
		case n.Drain:
			s = sentence{"is being drained", drained(n, *st.Job.Type == api.JobTypeService, st.Pins.Mode == rewrite.ModeGPU, m.Time)}
		case a.Client == api.AllocClientStatusUnknown:
			s = sentence{"is disconnected from Nomad", disconnected(a, st.Job)}
		default:
			for _, id := range a.GPUs {
				f := failing(n, id)
				if f.node != "" {
					gpus[f] = append(gpus[f], id)
				}
			}
		}
		if s.is != "" && !slices.Contains(nodes[s], n.Name) {
			nodes[s] = append(nodes[s], n.Name)
		}
	}
	for f, ids := range gpus { // one sentence for all members on a node
		s := sentence{f.is + " " + someOf(ids) + f.so, "the members on that node keep running; " + elsewhere}
		nodes[s] = append(nodes[s], f.node)
	}
	for s, names := range nodes {
		like := ""
		more := len(names) - 1
		switch {
		case more == 1:
			like = ", like another node of the job"
		case more > 1:
			like = fmt.Sprintf(", like %d other nodes of the job", more)
		}
		said = append(said, reason.Reason{Kind: reason.NodesLeaving, Cause: "node " + slices.Min(names) + " " + s.is + like + ": " + s.what})
	}
	slices.SortFunc(said, func(a, b reason.Reason) int { return cmp.Compare(a.Cause, b.Cause) })
	more := len(said) - mostLeaving
	if more > 0 {
		said = append(said[:mostLeaving], reason.Reason{Kind: reason.NodesLeaving, Cause: "more of the job's nodes are affected, for other reasons or at other times"})
	}
	return said
}

// Ending returns a reason if a gang waits while its stopped members are still ending, and no reason
// otherwise.
func (m *Model) Ending(o gang.Observed) reason.Reason {
	if o.Nomad != palapi.Waiting {
		return reason.Reason{}
	}
	n := 0
	for _, a := range m.State.AllocsOf(o.Key) {
		if a.Live() && !a.LeftBehind(o.Job) {
			n++
		}
	}
	if n == 0 {
		return reason.Reason{}
	}
	return reason.Reason{Kind: reason.StillEnding, Have: n}
}

// fault is what a node reports about GPUs of members.
type fault struct{ node, is, so string }

// failing describes the fault of a member's GPU. Either the node reports the GPU as unhealthy, or
// the node no longer lists the GPU. In both cases, Nomad lets the member keep running.
func failing(n *api.Node, id string) fault {
	gpu := instance(n, id)
	switch {
	case gpu == nil:
		return fault{n.Name, "no longer lists", ", so the node's device plugin does not run or is configured without these GPUs"}
	case !gpu.Healthy:
		why := " as unhealthy"
		if gpu.HealthDescription != "" {
			why += ", reason: " + gpu.HealthDescription
		}
		return fault{n.Name, "reports", why}
	}
	return fault{}
}

// someOf returns the ids as text, and shortens a long list.
func someOf(ids []string) string {
	slices.Sort(ids)
	more := len(ids) - mostLeaving
	if more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:mostLeaving], ", "), more)
	}
	return strings.Join(ids, ", ")
}

// instance returns the GPU with this id on the node, or nil if the node does not list the GPU.
func instance(n *api.Node, id string) *api.NodeDevice {
	for _, d := range cluster.GPUDevices(n) {
		i := slices.IndexFunc(d.Instances, func(in *api.NodeDevice) bool { return in.ID == id })
		if i >= 0 {
			return d.Instances[i]
		}
	}
	return nil
}

// elsewhere tells users how to get other GPUs for a job that keeps running on its present GPUs.
const elsewhere = "to get other GPUs for the job, stop it and run it again"

// drained describes what happens to members on a node that is being drained. Nomad lets members of
// batch jobs run until the deadline. Nomad replaces members of services without waiting for the
// deadline, a few at a time. A member runs until the deadline if Nomad cannot place it elsewhere
// because the job is pinned to its GPUs.
func drained(n *api.Node, service, pinned bool, now time.Time) string {
	by := time.Time{}
	if n.DrainStrategy != nil {
		by = n.DrainStrategy.ForceDeadline
	}
	switch {
	case n.DrainStrategy != nil && n.DrainStrategy.Deadline < 0, !by.IsZero() && !by.After(now):
		return "Nomad stops the members on that node now"
	case service && pinned && by.IsZero():
		return "the job is pinned to GPUs (pal_pin), so the members on that node are not moved, but keep running; " + elsewhere
	case service && pinned:
		return "the job is pinned to GPUs (pal_pin), so Nomad does not move the members on that node, but stops them at " + reason.Second(by) + "; " + elsewhere
	case service && by.IsZero():
		return "Nomad moves the members on that node to other nodes"
	case service:
		return "Nomad moves the members on that node to other nodes, by " + reason.Second(by) + " at the latest"
	case by.IsZero():
		return "the members on that node run to their end, because the drain has no deadline"
	}
	return "Nomad stops the members on that node at " + reason.Second(by) + " unless they end earlier"
}

// disconnected describes what happens to a member on a disconnected node. disconnected assumes that
// the node was disconnected at the time of the member's last change. If the job was changed after
// the disconnection, this time is too late.
func disconnected(a *cluster.Alloc, job *api.Job) string {
	is := "the members on that node count as running"
	after := lostAfter(job, a.Group)
	if after > 0 {
		is += " until about " + reason.Second(time.Unix(0, a.ModifyTime).Add(after)) + " (lost_after), and keep running if the node reconnects by that time"
	}
	return is
}

// lostAfter returns how long members of a group can be on a disconnected node before Nomad counts
// them as lost. lostAfter returns 0 if the job sets no limit.
func lostAfter(job *api.Job, group string) time.Duration {
	tg := job.LookupTaskGroup(group)
	if tg == nil || tg.Disconnect == nil || tg.Disconnect.LostAfter == nil {
		return 0
	}
	return *tg.Disconnect.LostAfter
}
