// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

var helpMeasure = help("measure [options] <node or GPU>... | measure [options] -all", `
Measures GPUs now, at full power for two to five minutes each. Name nodes by name or id,
and GPUs by a prefix of their UUID. For each GPU the command registers a batch job,
nomad-pal-measure-<GPU>, that requests exactly this GPU and sleeps, so that Nomad gives
the GPU to no other job. The device plugin on the node detects the job, and measures
the GPU. A GPU that another job holds is measured when it comes free. The measuring jobs have priority 1
and preempt no job. The command purges them at its end and on Ctrl-C, except those whose
task failed. If the command is killed, each job ends 15 minutes after the
job got its GPU.

You need the right to submit jobs in the namespace. The nodes need a driver whose tasks
are processes of the node (raw_exec, exec, docker or podman), and a device plugin whose
measure mode is "idle" or "manual". Results are final only if all GPUs of a node are
measured together, because a job on the whole node heats all of them; otherwise the
results are provisional.

Exit codes: 0 all GPUs were measured, or -dry-run; 1 an error; 2 some GPUs were not
measured.

Measure Options:

  -all                     All GPUs of the cluster.
  -at-most=<n>             Measure at most n GPUs at once (default: all that are free).
  -wait=<duration>         How long to wait for GPUs in use; "0s": not at all. Default: until they are
                           free.
  -dry-run                 Show which GPUs would be measured now, which would wait, and for
                           which jobs.
  -driver=<driver>         The task driver (default: the first that is healthy on the node, of
                           raw_exec, exec, docker and podman).
  -image=<image>           The image for docker and podman, with sleep in it (default busybox:1).
`, examples(
	"Measure a node after its GPUs were replaced:", "nomad-pal measure gpu-07",
	"Measure the whole cluster, eight GPUs at a time:", "nomad-pal measure -all -at-most=8",
	"Which GPUs would be measured now, and why not the others?", "nomad-pal measure -all -dry-run",
), outputOptions, generalOptions)

// measureOutcome is the outcome of the measurement of one GPU.
type measureOutcome string

// The outcomes. gpuReady and gpuWaits occur only with -dry-run, or if the command ended before the
// GPU's turn.
const (
	gpuMeasured measureOutcome = "measured"
	gpuFailed   measureOutcome = "failed"
	gpuSkipped  measureOutcome = "skipped"
	gpuReady    measureOutcome = "ready"
	gpuWaits    measureOutcome = "waits"
)

// measuredGPU is what `nomad-pal measure` prints for one GPU.
type measuredGPU struct {
	GPU  string `json:"gpu"`  // the GPU's id
	Node string `json:"node"` // its node's name
	// Outcome is measured, failed or skipped; with -dry-run, or if measure ended early, also ready
	// or waits.
	Outcome measureOutcome `json:"outcome"`
	// Reason is why the GPU was not measured, or what it waits for.
	Reason string `json:"reason,omitempty"`
	// Key is the comparability key. Times are the measured times by application class, in
	// milliseconds per unit of work.
	Key   string                   `json:"key,omitempty"`
	Times map[pal.AppClass]float64 `json:"times,omitempty"`
	// Provisional reports whether other GPUs of the node were idle during the measurement.
	Provisional bool `json:"provisional,omitempty"`
	// Uncapped: class A did not reach the power limit, so its time says little about training.
	Uncapped bool `json:"uncapped,omitempty"`
}

type measureOptions struct {
	all, dryRun   bool
	atMost        int
	wait          time.Duration // negative: wait without a limit
	driver, image string
}

func runMeasure(b *base, args []string) int {
	fs, o := b.flags("measure"), measureOptions{}
	fs.BoolVar(&o.all, "all", false, "")
	fs.BoolVar(&o.dryRun, "dry-run", false, "")
	fs.IntVar(&o.atMost, "at-most", 0, "")
	fs.DurationVar(&o.wait, "wait", -1, "")
	fs.StringVar(&o.driver, "driver", "", "")
	fs.StringVar(&o.image, "image", "busybox:1", "")
	names, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	switch {
	case o.all == (len(names) > 0):
		return b.fail(errors.New("give nodes or GPUs, or use -all; see nomad-pal measure -help"))
	case b.given("at-most") && o.atMost < 1:
		return b.fail(fmt.Errorf("-at-most=%d: at least one GPU is needed", o.atMost))
	case b.given("wait") && o.wait < 0:
		return b.fail(fmt.Errorf("-wait=%s is negative", o.wait))
	}
	r, err := newMeasureRun(b, names, o)
	if err != nil {
		return b.fail(err)
	}
	if !o.dryRun {
		err = r.run()
	}
	out := r.outcomes()
	code := b.show(out, func() { printMeasured(b, out) })
	switch {
	case err != nil:
		return b.fail(err)
	case code == 0 && !o.dryRun && slices.ContainsFunc(out, func(m measuredGPU) bool { return m.Outcome != gpuMeasured }):
		return 2
	}
	return code
}

// printMeasured prints a table of the GPUs and their outcomes.
func printMeasured(b *base, out []measuredGPU) {
	length := b.idLength(query.IDLength(each(out, func(m measuredGPU) string { return m.GPU })))
	rows := []string{row("GPU", "Node", "Outcome", "A", "B", "C", "D", "Note")}
	for _, m := range out {
		notes := []string{m.Reason}
		if m.Provisional {
			notes = append(notes, "provisional: not measured with all GPUs of its node")
		}
		if m.Uncapped {
			notes = append(notes, "class A stayed below the power limit, so its time says little about training")
		}
		note := strings.TrimPrefix(strings.Join(notes, "; "), "; ")
		cells := []any{shortGPU(m.GPU, length), m.Node, string(m.Outcome)}
		for _, c := range pal.AppClasses() {
			text := "-"
			if ms := m.Times[c]; ms > 0 {
				text = fmt.Sprintf("%.2f ms", ms)
			}
			cells = append(cells, text)
		}
		rows = append(rows, row(append(cells, oneLine(note))...))
	}
	b.table(rows)
}

// measureTarget is a GPU to measure, and the state of its measuring job.
type measureTarget struct {
	measuredGPU
	node  *api.Node
	model string
	held  string // the job that holds the GPU, or "" if the GPU is free
	// before is the plugin's report before the measurement. registered is when the measuring job
	// was registered; zero means that it is not registered. again is the time of the next try.
	before     attr.Account
	registered time.Time
	started    bool   // the measuring job has its allocation
	told       string // the last reason for waiting that the plugin reported
	again      time.Time
}

func (t *measureTarget) over() bool {
	return t.Outcome == gpuMeasured || t.Outcome == gpuFailed || t.Outcome == gpuSkipped
}

// beginMeasuring returns the targets for which the caller now registers measuring jobs.
// beginMeasuring takes free GPUs node by node, so that at most atMost measurements run at the same
// time (0: no limit).
func beginMeasuring(ts []*measureTarget, now time.Time, atMost int) (begin []*measureTarget) {
	running := 0
	for _, t := range ts {
		if !t.registered.IsZero() && !t.over() {
			running++
		}
	}
	for _, t := range ts {
		if atMost > 0 && running >= atMost {
			break
		}
		if t.registered.IsZero() && !t.over() && t.held == "" && !now.Before(t.again) {
			begin, running = append(begin, t), running+1
		}
	}
	return begin
}

// selectGPUs returns the named GPUs of these nodes, or all GPUs if none is named.
func selectGPUs(nodes map[string]*api.Node, names []string) ([]*measureTarget, error) {
	var ts []*measureTarget
	found := map[string]int{} // how many GPUs each name matches
	for _, n := range slices.SortedFunc(maps.Values(nodes), func(a, b *api.Node) int {
		return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID)
	}) {
		for _, d := range cluster.GPUDevices(n) {
			for _, g := range d.Instances {
				wanted := len(names) == 0
				for _, name := range names {
					if name != "" && (name == n.Name || name == n.ID || attr.Begins(g.ID, name)) {
						wanted = true
						found[name]++
					}
				}
				if wanted {
					ts = append(ts, newMeasureTarget(n, d, g))
				}
			}
		}
	}
	for _, name := range names {
		if found[name] == 0 {
			return nil, fmt.Errorf("%q is neither a node with GPUs nor a GPU: nomad-pal gpus lists them", name)
		}
	}
	if len(ts) == 0 {
		return nil, errors.New("no node has a GPU: is the device plugin installed on the clients?")
	}
	return ts, nil
}

// newMeasureTarget returns the target for a GPU. If the GPU cannot be measured, the target's
// outcome is skipped.
func newMeasureTarget(n *api.Node, d *api.NodeDeviceResource, g *api.NodeDevice) *measureTarget {
	t := &measureTarget{measuredGPU: measuredGPU{GPU: g.ID, Node: n.Name, Outcome: gpuReady}, node: n, model: d.Name}
	t.before, _ = accountOf(d, g.ID)
	if why := unmeasurable(n, g.ID); why != "" {
		t.Outcome, t.Reason = gpuSkipped, why
	}
	return t
}

// unmeasurable returns why a GPU of a node cannot be measured, or "" if it can.
func unmeasurable(n *api.Node, gpu string) string {
	for _, d := range cluster.GPUDevices(n) {
		i := slices.IndexFunc(d.Instances, func(g *api.NodeDevice) bool { return g.ID == gpu })
		if i < 0 {
			continue
		}
		account, known := accountOf(d, gpu)
		switch {
		case d.Type == attr.SharedType:
			return "this GPU is shared, and the command measures only whole GPUs; by default the plugin measures a shared GPU while no job uses any part of the GPU"
		case !known:
			return "this GPU cannot be measured: it is emulated, a MIG instance, or served by another device plugin"
		case account.Unable != "":
			return account.Unable
		case n.Status != api.NodeStatusReady:
			return "its node is " + n.Status
		case n.Drain:
			return "its node is being drained; to end the drain: nomad node drain -disable " + n.ID
		case n.SchedulingEligibility == api.NodeSchedulingIneligible:
			return "its node is not eligible: nomad node eligibility -enable " + n.ID
		case !d.Instances[i].Healthy:
			return "unhealthy: " + d.Instances[i].HealthDescription
		}
		return ""
	}
	return "its node no longer lists this GPU"
}

// accountOf returns the device plugin's report about measurements of a GPU. known is false if there
// is no report.
func accountOf(d *api.NodeDeviceResource, gpu string) (a attr.Account, known bool) {
	all, err := attr.ParseAccounts(cluster.TextOf(d, attr.Measuring))
	if err != nil {
		return a, false
	}
	a, known = all[gpu]
	return a, known
}
