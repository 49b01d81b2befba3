// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// target is the thing that an argument of explain names.
type target struct {
	job   cluster.JobKey
	alloc *api.AllocationListStub
	gpu   *palapi.GPU
	node  string
	gpus  []palapi.GPU // of the node named node
	// idLength is the number of characters to which ids can be cut so that they still differ.
	idLength int
}

// target finds a job, GPU, node or allocation by its full id or name, or by an unambiguous prefix.
// Full ids and names take precedence over prefixes. Jobs take precedence over GPUs, nodes and
// allocations with an equal name or prefix.
func (b *base) target(s *answers, name string) (*target, error) {
	if err := request.Addressable(name); err != nil {
		return nil, err
	}
	jobs, unlisted := s.Jobs()
	if unlisted != nil && !nomad.Refused(unlisted) {
		return nil, unlisted
	}
	keys := each(jobs, func(j palapi.JobStatus) cluster.JobKey { return cluster.JobKey{Namespace: j.Namespace, ID: j.Job} })
	if i := slices.IndexFunc(keys, func(k cluster.JobKey) bool { return k.ID == name && (b.namespace == "*" || b.namespace == k.Namespace) }); i >= 0 {
		return &target{job: keys[i]}, nil
	}
	all, hidden := s.GPUs()
	if hidden != nil {
		all = nil // the token may not read nodes
	}
	if t := hardware(all, func(id string) bool { return id == name }); t != nil {
		return t, nil
	}
	if found := at(all, name); len(found) > 1 {
		return nil, fmt.Errorf("%q matches %d GPUs: %s", name, len(found), firstOf(found))
	} else if len(found) == 1 {
		return hardware(all, func(id string) bool { return id == found[0] }), nil
	}
	job, unread := s.nomad.Job(b.ctx, keyOf(b, name))
	if unread == nil && job != nil && *job.ID == name { // the job has ended, has no GPUs, or cannot be listed
		return &target{job: keyOf(b, name)}, nil
	}
	k, err := query.FindJob(keys, b.namespace, name)
	if err == nil && k.ID == name {
		k, err = jobBeginning(b, s, k)
	}
	if err != nil || k.ID != name {
		return &target{job: k}, err
	}
	begins := func(id string) bool { return attr.Begins(id, name) }
	if t := hardware(all, begins); t != nil {
		return t, nil
	}
	if found := beginnings(all, begins); len(found) > 1 {
		return nil, fmt.Errorf("%q matches %d GPUs and nodes: type a longer prefix (%s)", name, len(found), firstOf(found))
	}
	if t, err := allocation(b, s, name); t != nil || err != nil {
		return t, err
	}
	if hidden != nil && !nomad.Refused(unread) { // otherwise the agent's answer names the missing right
		return nil, fmt.Errorf("%w; cannot check whether a GPU or node has this name: %w", nomad.NoJob(k), hidden)
	}
	if why := unnumbered(all, name); why != "" {
		return nil, fmt.Errorf("there is neither a job %q nor such a GPU%s", name, why)
	}
	return &target{job: k}, goneGPU(name)
}

// jobBeginning returns the job that has ended or has no GPUs, and whose id begins with k.ID.
// Without a match, jobBeginning returns k; with several, an error.
func jobBeginning(b *base, s *answers, k cluster.JobKey) (cluster.JobKey, error) {
	found, _, err := s.nomad.API().Jobs().List((&api.QueryOptions{Prefix: k.ID, Namespace: b.namespace, PerPage: few + 1}).WithContext(b.ctx))
	switch {
	case err != nil || len(found) == 0: // an error counts as no match
		return k, nil
	case len(found) == 1:
		return cluster.JobKey{Namespace: found[0].Namespace, ID: found[0].ID}, nil
	}
	names := each(found, func(j *api.JobListStub) string { return cluster.JobKey{Namespace: j.Namespace, ID: j.ID}.String() })
	return k, fmt.Errorf("job prefix %q is not unique: %s", k.ID, firstOf(names))
}

// goneGPU returns an error about a GPU that no node lists. If prefix cannot be the beginning of a
// GPU's id, goneGPU returns nil.
func goneGPU(prefix string) error {
	if !strings.HasPrefix(prefix, "GPU-") && !strings.HasPrefix(prefix, "MIG-") {
		return nil
	}
	return fmt.Errorf("no node lists a GPU %q", prefix)
}

// keyOf returns the key of the job with this id in the command's namespace. For all namespaces
// ("*"), keyOf takes the namespace "default".
func keyOf(b *base, id string) cluster.JobKey {
	return cluster.JobKey{Namespace: cmp.Or(strings.Trim(b.namespace, "*"), api.DefaultNamespace), ID: id}
}

// isJob reports whether Nomad has a job with exactly this key.
func isJob(b *base, s *answers, k cluster.JobKey) bool {
	job, err := s.nomad.Job(b.ctx, k)
	return err == nil && job != nil && *job.ID == k.ID
}

// hardware returns the GPU or node whose id or name matches. hardware returns nil if none or more
// than one matches.
func hardware(all []palapi.GPU, is func(string) bool) *target {
	if len(beginnings(all, is)) != 1 {
		return nil
	}
	for i, g := range all {
		switch {
		case is(g.ID):
			return &target{gpu: &all[i]}
		case is(g.Node):
			of := slices.DeleteFunc(slices.Clone(all), func(o palapi.GPU) bool { return o.Node != g.Node })
			return &target{node: g.Node, gpus: of, idLength: idLength(all)}
		}
	}
	return nil
}

// beginnings returns the ids of matching GPUs and the names of matching nodes, sorted.
func beginnings(all []palapi.GPU, is func(string) bool) []string {
	found := map[string]bool{}
	for _, g := range all {
		for _, id := range []string{g.ID, g.Node} {
			if is(id) {
				found[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// few is the maximum number of names that messages list.
const few = 5

// firstOf joins the first names, at most [few].
func firstOf(names []string) string {
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// didYouMean adds a hint to an error about a missing job: another namespace that has a job of this
// name, or the job with the most similar name.
func didYouMean(b *base, s *answers, name string, err error) error {
	if none := b.noNamespace(s.nomad, b.namespace); none != nil {
		return none
	}
	jobs, unknown := s.Jobs()
	if unknown != nil {
		return err
	}
	return b.similar(each(jobs, func(j palapi.JobStatus) cluster.JobKey { return cluster.JobKey{Namespace: j.Namespace, ID: j.Job} }), name, err)
}

// noJob returns the error for a missing job, with the hint that [didYouMean] adds. noJob considers
// all jobs in Nomad, also those without GPUs.
func (b *base) noJob(client *nomad.Client, k cluster.JobKey) error {
	if none := b.noNamespace(client, k.Namespace); none != nil {
		return none
	}
	all, _, err := client.API().Jobs().List((&api.QueryOptions{Namespace: api.AllNamespacesNamespace}).WithContext(b.ctx))
	if err != nil {
		return nomad.NoJob(k)
	}
	return b.similar(each(all, func(j *api.JobListStub) cluster.JobKey { return cluster.JobKey{Namespace: j.Namespace, ID: j.ID} }), k.ID, nomad.NoJob(k))
}

// similar adds a hint to an error about a missing job: another namespace that has a job of this
// name, or the job with the most similar name.
func (b *base) similar(jobs []cluster.JobKey, name string, err error) error {
	var names []string
	for _, j := range jobs {
		if j.ID == name {
			return fmt.Errorf("%w, but namespace %s has a job with this name: nomad-pal %s %s", err, j.Namespace, b.command, palapi.InNamespace(j.Namespace, palapi.ShellQuoted(name)))
		}
		names = append(names, j.ID)
	}
	slices.Sort(names)
	return fmt.Errorf("%w%s", err, nearest.Question(name, names))
}

// allocation finds an allocation by a prefix of its id; nil if there is none.
func allocation(b *base, s *answers, prefix string) (*target, error) {
	even := prefix
	if digits := strings.ReplaceAll(prefix, "-", ""); len(digits) < 4 || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, nil
	} else if len(digits)%2 == 1 { // Nomad accepts prefixes of whole bytes only
		even = prefix[:len(prefix)-1]
	}
	found, _, err := s.nomad.API().Allocations().List((&api.QueryOptions{Prefix: even, Namespace: b.namespace}).WithContext(b.ctx))
	if err != nil {
		return nil, nil // an error counts as no match
	}
	found = slices.DeleteFunc(found, func(a *api.AllocationListStub) bool { return !strings.HasPrefix(a.ID, prefix) })
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &target{alloc: found[0], job: cluster.JobKey{Namespace: found[0].Namespace, ID: found[0].JobID}}, nil
	}
	return nil, fmt.Errorf("%q matches %d allocations: type more of the id", prefix, len(found))
}

// nodeState is a node's state in Nomad.
type nodeState struct {
	// ID is the node's id in Nomad. ID, Status and Eligibility are empty if the token cannot read
	// nodes.
	ID          string `json:"id"`
	Name        string `json:"name"`            // the node's name
	Status      string `json:"status"`          // its status in Nomad, such as ready or down
	Eligibility string `json:"eligibility"`     // eligible or ineligible for new allocations
	Drain       bool   `json:"drain,omitempty"` // the node is being drained
	// DrainUntil is when Nomad stops the allocations that still run on the node; zero if the drain
	// has no deadline.
	DrainUntil time.Time `json:"drain_until,omitzero"`
}

func explainNode(b *base, s *answers, t *target) (*explained, error) {
	n := &nodeState{Name: t.node}
	filter := fmt.Sprintf("Name == %q", t.node)
	if stubs, _, err := s.nomad.API().Nodes().List((&api.QueryOptions{Filter: filter}).WithContext(b.ctx)); err == nil {
		for _, s := range stubs {
			if s.Name == t.node {
				n.ID, n.Status, n.Eligibility, n.Drain = s.ID, s.Status, s.SchedulingEligibility, s.Drain
			}
		}
	}
	if n.Drain {
		if full, _, err := s.nomad.API().Nodes().Info(n.ID, (&api.QueryOptions{}).WithContext(b.ctx)); err == nil && full.DrainStrategy != nil {
			n.DrainUntil = full.DrainStrategy.ForceDeadline
		}
	}
	text := fmt.Sprintf("Node %s has %s: %s", t.node, pal.CountGPUs(len(t.gpus)), countGPUs(t.gpus))
	switch {
	case n.Status != "" && n.Status != api.NodeStatusReady:
		text += fmt.Sprintf(". The node is %s, so nothing is placed on it", n.Status)
	case n.Drain:
		text += ". The node is being drained, so nothing is placed on it"
		if !n.DrainUntil.IsZero() {
			text += ". Nomad stops the tasks that still run on this node at " + clock(n.DrainUntil)
		}
	case n.Eligibility == api.NodeSchedulingIneligible:
		text += ". The node is not eligible, so nothing is placed on it: nomad node eligibility -enable " + short(n.ID)
	}
	return &explained{Kind: "node", Summary: text + ".", Node: n, NodeGPUs: t.gpus, idLength: t.idLength}, nil
}

func printGPU(b *base, x *explained) {
	b.say(bold, x.Summary)
	g := x.GPU
	if len(g.PMScores) > 0 {
		b.head("How fast this GPU is")
		rows := []string{row("Application class", "PM score", "Variability class")}
		for _, a := range pal.AppClasses() {
			if s, ok := g.PMScores[a]; ok {
				rows = append(rows, row(a, palapi.Score(s), class(g.Classes[a])))
			}
		}
		b.table(rows)
		sayUncapped(b, *g)
	} else {
		b.write("\nThe GPU is not measured yet, so its speed is not known.\n")
	}
	var next []string
	switch {
	case g.Quarantine != nil && g.Healthy:
		next = append(next, "To lift the quarantine now: nomad-pal quarantine -lift "+attr.GPUOf(g.ID))
	case !g.Healthy && g.Job != "":
		next = append(next, "To start the job on other GPUs, stop it and run it again (nomad job restart keeps the GPUs)")
	}
	if g.Job != "" && g.Job != palapi.Unseen {
		namespace, id, _ := strings.Cut(g.Job, "/")
		next = append(next, "Why the job has this GPU: "+palapi.ExplainCommand(namespace, id))
	}
	printSteps(b, next)
	if len(g.PMScores) > 0 {
		printLegend(b, "PM score", "Application class", "Variability class")
	}
}

func printNode(b *base, x *explained) {
	b.say(bold, x.Summary)
	b.write("\n")
	printGPUs(b, x.NodeGPUs, x.idLength)
	printLegend(b, "PM score", "Variability class")
}
