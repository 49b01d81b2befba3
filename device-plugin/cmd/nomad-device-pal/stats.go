// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/cli"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

func statsCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Print the statistics of this node's GPUs",
		help: `Usage: nomad-device-pal stats [options]

  Prints the statistics that the plugin would send. Rates and profiling metrics
  cover the interval.
` + sourceHelp + stateDirHelp + `  -interval=1s     Time between the two readings, at least 100ms.
`,
		run: func(args []string) int {
			var s source
			var interval time.Duration
			code, ok := s.parse(ui, "stats", args, func(fs *flag.FlagSet) {
				fs.DurationVar(&interval, "interval", time.Second, "")
				s.stateDirFlag(fs)
			})
			if !ok {
				return code
			}
			if interval < 100*time.Millisecond {
				ui.Error("stats: -interval must be at least 100ms")
				return 2
			}
			if err := s.released(); err != nil {
				return fail(ui, "stats", err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*interval+gpu.DriverWithin)
			defer cancel()
			groups, err := s.statistics(ctx, interval)
			if err != nil {
				return fail(ui, "stats", err)
			}
			return printStats(ui, groups, s.json)
		},
	}
}

// statistics takes two readings and returns the second, because only the second has rates.
func (s *source) statistics(ctx context.Context, interval time.Duration) ([]*device.DeviceGroupStats, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := s.plugin()
	devices, err := p.Fingerprint(ctx) // the stream stays open, because statistics need its scans
	if err != nil {
		return nil, err
	}
	switch m := <-devices; {
	case m == nil:
		return nil, fmt.Errorf("%w within %s", gpu.ErrNoAnswer, gpu.DriverWithin)
	case len(m.Devices) == 0:
		return nil, fmt.Errorf("no GPUs")
	}
	stream, err := p.Stats(ctx, interval)
	if err != nil {
		return nil, err
	}
	<-stream
	m, ok := <-stream
	if !ok {
		return nil, fmt.Errorf("no statistics: %w", ctx.Err())
	}
	return m.Groups, nil
}

func printStats(ui cli.Ui, groups []*device.DeviceGroupStats, asJSON bool) int {
	if asJSON {
		out := map[string]map[string]*structs.StatValue{}
		for _, g := range groups {
			for id, s := range g.InstanceStats {
				out[id] = s.Stats.Attributes
			}
		}
		return printJSON(ui, "stats", out)
	}
	for _, g := range groups {
		for _, id := range slices.Sorted(maps.Keys(g.InstanceStats)) {
			ui.Output(fmt.Sprintf("%s/%s/%s[%s]", g.Vendor, g.Type, g.Name, id))
			var rows []string
			set := g.InstanceStats[id].Stats.Attributes
			for _, name := range slices.Sorted(maps.Keys(set)) {
				rows = append(rows, "  "+name+" | "+statText(set[name]))
			}
			ui.Output(columns(rows) + "\n")
		}
	}
	return 0
}

// statText formats a statistic for display.
func statText(v *structs.StatValue) string {
	text := ""
	switch {
	case v.StringVal != nil:
		return *v.StringVal
	case v.BoolVal != nil:
		return fmt.Sprint(*v.BoolVal)
	case v.IntNumeratorVal != nil && v.IntDenominatorVal != nil:
		text = fmt.Sprintf("%d / %d", *v.IntNumeratorVal, *v.IntDenominatorVal)
	case v.IntNumeratorVal != nil:
		text = fmt.Sprint(*v.IntNumeratorVal)
	case v.FloatNumeratorVal != nil:
		text = fmt.Sprintf("%.4g", *v.FloatNumeratorVal)
	}
	return withUnit(text, v.Unit)
}
