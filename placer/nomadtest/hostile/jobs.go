// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hostile

import (
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Job is a malformed or absurd job. Name says what is wrong with the job.
type Job struct {
	Name string
	Job  *api.Job
}

// Plain returns a gated batch job in the form that Nomad stores. The job has one group. Each member
// has the given number of GPUs. index is the job's JobModifyIndex, ModifyIndex and SubmitTime.
func Plain(id string, members int, gpus uint64, index uint64) *api.Job {
	ns, kind, status, cpu, priority, submitted, version := "default", "batch", "pending", 100, 50, int64(index), uint64(0)
	return rewrite.Gate(&api.Job{
		ID: &id, Name: &id, Namespace: &ns, Type: &kind, Status: &status, Priority: &priority, Datacenters: []string{"*"},
		Version: &version, CreateIndex: &index, ModifyIndex: &index, JobModifyIndex: &index, SubmitTime: &submitted,
		TaskGroups: []*api.TaskGroup{group("g", members, gpus, cpu)},
	})
}

func group(name string, members int, gpus uint64, cpu int) *api.TaskGroup {
	return &api.TaskGroup{Name: &name, Count: &members, Tasks: []*api.Task{{
		Name: "t", Driver: "raw_exec", Resources: &api.Resources{
			CPU: &cpu, MemoryMB: &cpu, Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}},
		},
	}}}
}

// Jobs returns all hostile jobs. The jobs are gated and belong to the namespace "default". The jobs
// have consecutive indexes, beginning with first.
func Jobs(first uint64) []Job {
	var all []Job
	add := func(name string, change func(*api.Job)) {
		j := Plain(fmt.Sprintf("hostile-%d", len(all)), 1, 1, first+uint64(len(all)))
		change(j)
		all = append(all, Job{name, j})
	}
	absurdCounts(add)
	absurdAmounts(add)
	absurdText(add)
	return all
}

type adder func(name string, change func(*api.Job))

func absurdCounts(add adder) {
	groups := func(gs ...*api.TaskGroup) func(*api.Job) { return func(j *api.Job) { j.TaskGroups = gs } }
	add("device counts whose sum overflows to 2", groups(group("a", 1, 1<<63, 1), group("b", 1, 1<<63+2, 1)))
	add("a device count of 2^64-1", groups(group("a", 1, math.MaxUint64, 1)))
	add("a device count of 2^63-1", groups(group("a", 1, math.MaxInt64, 1)))
	add("a number of members times GPUs that overflows to 0", groups(group("a", 1<<32, 1<<32, 1)))
	add("a number of members times GPUs that overflows to 4", groups(group("a", 2, 1<<63+2, 1)))
	add("2^62 members", groups(group("a", 1<<62, 1, 1)))
	add("groups whose total number of members overflows", groups(group("a", math.MaxInt, 1, 1), group("b", math.MaxInt, 1, 1), group("c", 4, 1, 1)))
	add("negative members", groups(group("a", -3, 1, 1), group("b", 4, 1, 1)))
	add("a device count of 0", groups(group("a", 1, 0, 1), group("b", 1, 1, 1)))
	add("10,000 GPUs in one member", groups(group("a", 1, 10_000, 1)))
	add("a million members", groups(group("a", 1_000_000, 1, 1)))
	add("a thousand groups", func(j *api.Job) {
		j.TaskGroups = nil
		for i := range 1000 {
			j.TaskGroups = append(j.TaskGroups, group(fmt.Sprintf("g%d", i), 1, 1, 1))
		}
	})
	add("two groups of one name", groups(group("a", 1, 1, 1), group("a", 2, 2, 1)))
	add("no groups", groups())
	add("members without a number", func(j *api.Job) { j.TaskGroups[0].Count = nil })
	add("GPUs without a number", func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = nil })
}

func absurdAmounts(add adder) {
	amounts := func(cpu, memory, disk int) func(*api.Job) {
		return func(j *api.Job) {
			for range 3 {
				t := *j.TaskGroups[0].Tasks[0]
				t.Name += "t"
				t.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
				j.TaskGroups[0].Tasks = append(j.TaskGroups[0].Tasks, &t)
			}
			j.TaskGroups[0].EphemeralDisk = &api.EphemeralDisk{SizeMB: &disk}
		}
	}
	add("CPU that wraps", amounts(math.MaxInt/2, 1, 1))
	add("memory that wraps", amounts(1, math.MaxInt, 1))
	add("disk that wraps", amounts(1, 1, math.MaxInt))
	add("negative amounts", amounts(-5, -5, -5))
	add("the lowest possible priority", func(j *api.Job) { p := math.MinInt; j.Priority = &p })
	add("the highest possible priority", func(j *api.Job) { p := math.MaxInt; j.Priority = &p })
	for _, when := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		add(fmt.Sprintf("submitted at %d", when), func(j *api.Job) { j.SubmitTime = &when })
	}
	for _, d := range []string{"2562047h", "1ns", "-1h", "1e308h", "", "∞"} {
		add(fmt.Sprintf("a duration of %q", d), func(j *api.Job) { j.Meta = map[string]string{"pal_duration": d, "pal_preempt": "true"} })
	}
	add("a spread target of more than 100 percent", func(j *api.Job) {
		weight := int8(math.MinInt8)
		j.Spreads = []*api.Spread{{Attribute: "${node.datacenter}", Weight: &weight, SpreadTarget: []*api.SpreadTarget{{Value: "dc1", Percent: 255}}}}
	})
}

func absurdText(add adder) {
	for _, bad := range []string{"\x1b[2J\x1b]0;owned\a", "a\nb\r\tc", "\u202egnp.exe", strings.Repeat("x", 100_000), "<script>alert(1)</script>", "a/b", "~", "%2e%2e%2f", "\xff\xfe"} {
		add(fmt.Sprintf("the text %.20q everywhere", bad), func(j *api.Job) {
			name := bad
			j.Name, j.TaskGroups[0].Name = &name, &name
			j.TaskGroups[0].Tasks[0].Name = bad
			j.Meta = map[string]string{bad: bad, "pal_class": bad}
			j.Constraints = append(j.Constraints, &api.Constraint{LTarget: bad, Operand: bad, RTarget: bad})
		})
	}
	add("a device of no name", func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = "nvidia/gpu/" })
	add("no datacenters", func(j *api.Job) { j.Datacenters = nil })
	add("a constraint with an invalid regular expression", func(j *api.Job) {
		j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${node.class}", Operand: "regexp", RTarget: "("})
	})
	add("a constraint with an invalid version", func(j *api.Job) {
		j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${attr.nomad.version}", Operand: "semver", RTarget: ">= x"})
	})
}
