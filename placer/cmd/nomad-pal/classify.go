// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/classify"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

var helpClassify = help("classify [options] <job>", `
Watches the GPUs of a running job through the device plugin's statistics and
reports its application class, and why. A: limited by the power cap, or always
using the compute units. B: in between. C: streams memory. D: accesses memory at
random. Prints the line to write into the job. Watch the job after its start-up, when
it does its usual work.

Classify Options:

  -for=<duration>          How long to watch. Default: 1m. The plugin publishes a
                           new reading every collection_interval (client telemetry).
`, examples(
	"Which class is my job?", "nomad-pal classify train",
	"Watch it for longer:", "nomad-pal classify -for 5m train",
), outputOptions, generalOptions)

// classified is what nomad-pal classify prints with -json.
type classified struct {
	Namespace string            `json:"namespace"`         // the job's namespace
	Job       string            `json:"job"`               // the job's id
	GPUs      []string          `json:"gpus"`              // ids of the GPUs that were watched
	Readings  int               `json:"readings"`          // number of readings of GPUs at work
	Verdict   *classify.Verdict `json:"verdict,omitempty"` // the class; nil if Missing is set
	Missing   string            `json:"missing,omitempty"` // why there is no class
}

func runClassify(b *base, args []string) int {
	fs := b.flags("classify")
	length := fs.Duration("for", time.Minute, "")
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return 1
	}
	if *length < time.Second {
		return b.fail(fmt.Errorf("-for %s is less than a second", *length))
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	k := cluster.JobKey{Namespace: b.namespace, ID: rest[0]}
	out := classified{Namespace: k.Namespace, Job: k.ID}
	readings, err := watchGPUs(b, client, k, *length, &out)
	if err != nil {
		return b.fail(err)
	}
	f := classify.Summarize(readings)
	out.Readings = f.Readings
	v, ok := classify.ByThresholds(f)
	if ok {
		out.Verdict = &v
	} else {
		out.Missing = v.Reason
	}
	return printClassified(b, out)
}

// watchGPUs collects the plugin's readings for the given length of time. It takes each reading
// once, and ignores readings from before it started. It looks up the job's GPUs again each time,
// because the job may move.
func watchGPUs(b *base, client *nomad.Client, k cluster.JobKey, length time.Duration, out *classified) ([]classify.Reading, error) {
	var readings []classify.Reading
	seen := map[string]time.Time{} // time of the last reading, by GPU
	every := min(5*time.Second, length/10)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(length); ; {
		gpus, err := client.JobGPUs(b.ctx, k)
		if err != nil {
			return nil, err
		}
		if len(gpus) == 0 && len(seen) == 0 {
			return nil, cmp.Or(b.noNamespace(client, b.namespace), fmt.Errorf("job %q in namespace %q has no running allocation with GPUs", k.ID, k.Namespace))
		}
		for _, node := range slices.Sorted(maps.Keys(gpus)) {
			rs, err := client.GPUReadings(b.ctx, node, gpus[node])
			if err != nil {
				return nil, err
			}
			for _, r := range rs {
				if last, ok := seen[r.GPU]; ok && !r.At.Equal(last) {
					readings = append(readings, r.Reading)
				}
				seen[r.GPU] = r.At
			}
		}
		left := time.Until(end)
		if left < every {
			out.GPUs = slices.Sorted(maps.Keys(seen))
			return readings, nil
		}
		fmt.Fprintf(b.io.err, "%s, %s left\n", counted(len(readings), "reading"), palapi.ShortDuration(time.Until(end).Round(time.Second)))
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return nil, b.ctx.Err()
		}
	}
}

// printClassified prints the classification of a job.
func printClassified(b *base, out classified) int {
	code := 0
	if out.Verdict == nil {
		code = 1
	}
	if b.json {
		return cmp.Or(b.printJSON(out), code)
	}
	rows := []string{row("Job", out.Job), row("GPUs", fmt.Sprint(len(out.GPUs))), row("Readings", fmt.Sprint(out.Readings))}
	if out.Verdict == nil {
		b.io.pairs(append(rows, row("Application class", "not known: "+out.Missing)))
		return code
	}
	sure := "clear"
	if !out.Verdict.Sure {
		sure = "uncertain: the job is near a boundary between classes, or the GPU reports too few statistics"
	}
	b.io.pairs(append(rows, row("Application class", string(out.Verdict.Class)), row("Because", out.Verdict.Reason), row("How sure", sure)))
	b.io.printf("\nTo use this class: meta { pal_class = %q }\n", out.Verdict.Class)
	return code
}
