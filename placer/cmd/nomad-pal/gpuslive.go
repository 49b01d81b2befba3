// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

func printLive(b *base, gpus []palapi.GPU) {
	if len(gpus) == 0 {
		b.io.printf("No GPU matches.\n")
		return
	}
	short := b.io.shortIDs(each(gpus, func(g palapi.GPU) string { return g.ID }))
	index, bus := placeColumns(gpus)
	row := rowWith(true, true, index, bus, true, true, true, true, true, true)
	rows := []string{row("GPU", "Node", "Index", "Bus id", "Utilization", "Memory", "Temp", "Power", "Job", "State")}
	silent := map[string]bool{}
	for _, g := range gpus {
		rows = append(rows, row(short(g.ID), g.Node, indexOf(g), g.BusID, utilization(g), memory(g.Live), temperature(g.Live), power(g.Live), g.Job, liveState(g, time.Now())))
		if g.NotLive != "" && !silent[g.NotLive] {
			silent[g.NotLive] = true
			b.io.complain("Warning: " + oneLine(g.NotLive))
		}
	}
	b.io.table(rows)
}

func utilization(g palapi.GPU) painted {
	if g.Live == nil || g.Live.Utilization == nil {
		return painted{plain, "unknown"}
	}
	p := painted{green, fmt.Sprintf("%3d%%", *g.Live.Utilization)}
	if g.Live.Idle() {
		p.style = plain
		if g.Job != "" {
			p.style = yellow
		}
	}
	return p
}

func of(n, all *int64, unit string, scale float64) string {
	switch {
	case n == nil:
		return "-"
	case all == nil:
		return fmt.Sprintf("%.4g %s", float64(*n)/scale, unit)
	}
	return fmt.Sprintf("%.4g/%.4g %s", float64(*n)/scale, float64(*all)/scale, unit)
}

func memory(u *palapi.Load) string {
	u = cmp.Or(u, &palapi.Load{})
	return of(u.MemoryUsedMiB, u.MemoryTotalMiB, "GiB", 1024)
}

func power(u *palapi.Load) string {
	u = cmp.Or(u, &palapi.Load{})
	return of(u.PowerW, u.PowerLimitW, "W", 1)
}

func temperature(u *palapi.Load) string {
	u = cmp.Or(u, &palapi.Load{})
	return of(u.TemperatureC, nil, "°C", 1)
}

// liveState returns a GPU's state and, if the GPU is idle although a job holds it, for how long.
func liveState(g palapi.GPU, now time.Time) painted {
	p := gpuState(g)
	if !g.IdleSince.IsZero() {
		p = painted{yellow, p.text + ", idle for " + palapi.About(now.Sub(g.IdleSince))}
	}
	return p
}
