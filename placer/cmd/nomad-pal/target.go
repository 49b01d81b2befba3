// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
}

// target finds a job, GPU, node or allocation by its full id or name, or by an unambiguous prefix.
// Full ids and names take precedence over prefixes. Jobs take precedence over GPUs, nodes and
// allocations with an equal name or prefix.
func (b *base) target(s *answers, name string) (*target, error) {
	if err := request.Addressable(name); err != nil {
		return nil, err
	}
	jobs, err := s.Jobs()
	if err != nil && !nomad.Refused(err) {
		return nil, err
	}
	keys := each(jobs, keyOfStatus)
	k, ambiguous := query.FindJob(keys, b.namespace, name)
	if k.ID == name && slices.Contains(keys, k) {
		return &target{job: k}, nil
	}
	all, hidden := s.GPUs()
	if hidden != nil {
		all = nil // the token may not read nodes
	}
	is := func(id string) bool { return id == name }
	found := at(all, name)
	if len(found) > 0 {
		is = func(id string) bool { return slices.Contains(found, id) }
	}
	if t, err := hardware(all, name, is); t != nil || err != nil {
		return t, err
	}
	job, unread := s.nomad.Job(b.ctx, keyOf(b, name))
	if unread == nil && job != nil && *job.ID == name { // the job has ended, has no GPUs, or cannot be listed
		return &target{job: keyOf(b, name)}, nil
	}
	if ambiguous != nil || k.ID != name {
		return &target{job: k}, ambiguous
	}
	if t, err := hardware(all, name, func(id string) bool { return attr.Begins(id, name) }); t != nil || err != nil {
		return t, err
	}
	if t, err := allocation(b, s, name); t != nil || err != nil {
		return t, err
	}
	if hidden != nil && !nomad.Refused(unread) { // otherwise the agent's answer names the missing right
		return nil, fmt.Errorf("%w; cannot check whether a GPU or node has this name: %w", nomad.NoJob(k), hidden)
	}
	return &target{job: k}, nil
}

// keyOf returns the key of the job with this id in the command's namespace. For all namespaces
// ("*"), keyOf takes the namespace "default".
func keyOf(b *base, id string) cluster.JobKey {
	return cluster.JobKey{Namespace: cmp.Or(strings.Trim(b.namespace, "*"), api.DefaultNamespace), ID: id}
}

// hardware returns the GPU or node whose id or name matches, nil if none does, or an error if several
// do.
func hardware(all []palapi.GPU, name string, is func(string) bool) (t *target, err error) {
	found := map[string]bool{}
	for i, g := range all {
		if is(g.ID) {
			found[g.ID], t = true, &target{gpu: &all[i]}
		}
		if is(g.Node) {
			of := slices.DeleteFunc(slices.Clone(all), func(o palapi.GPU) bool { return o.Node != g.Node })
			found[g.Node], t = true, &target{node: g.Node, gpus: of}
		}
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%q matches %d GPUs and nodes: type a longer prefix (%s)", name, len(found), firstOf(slices.Sorted(maps.Keys(found))))
	}
	return t, nil
}

func keyOfStatus(j palapi.JobStatus) cluster.JobKey {
	return cluster.JobKey{Namespace: j.Namespace, ID: j.Job}
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
	none := b.noNamespace(s.nomad, b.namespace)
	if none != nil {
		return none
	}
	jobs, unknown := s.Jobs()
	if unknown != nil {
		return err
	}
	var names []string
	for _, j := range jobs {
		if j.Job == name {
			return fmt.Errorf("%w, but namespace %s has a job with this name: nomad-pal %s %s", err, j.Namespace, b.command, palapi.InNamespace(j.Namespace, palapi.ShellQuoted(name)))
		}
		names = append(names, j.Job)
	}
	slices.Sort(names)
	return fmt.Errorf("%w%s", err, nearest.Question(name, names))
}

// allocation finds an allocation by a prefix of its id; nil if there is none.
func allocation(b *base, s *answers, prefix string) (*target, error) {
	even := prefix
	digits := strings.ReplaceAll(prefix, "-", "")
	if len(digits) < 4 || strings.Trim(digits, "0123456789abcdef") != "" {
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

func printGPU(b *base, x *explained) {
	b.io.say(bold, x.Summary)
	g := x.GPU
	if len(g.PMScores) > 0 {
		b.io.head("How fast this GPU is")
		rows := []string{row("Application class", "PM score", "Variability class")}
		for _, a := range pal.AppClasses() {
			if s, ok := g.PMScores[a]; ok {
				rows = append(rows, row(a, palapi.Score(s), class(g.Classes[a])))
			}
		}
		b.io.table(rows)
		sayUncapped(b, *g)
	} else {
		b.io.write("\nThe GPU is not measured yet, so its speed is not known.\n")
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
}

func printNode(b *base, x *explained) {
	b.io.say(bold, x.Summary)
	b.io.write("\n")
	printGPUs(b, x.NodeGPUs)
}
