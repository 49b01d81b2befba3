// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	gpulive "github.com/nomad-pal/nomad-pal/placer/live"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// gpuReader reads GPUs from the agent or, if no agent answers, from Nomad itself.
type gpuReader struct {
	b       *base
	filter  palapi.GPUFilter
	live    bool
	answers *answers
	// plain is the state read from Nomad itself. lacks is the reason why no agent answers; nil
	// means that an agent answers.
	plain  *query.Snapshot
	lacks  error
	reader gpulive.Reader
}

func (r *gpuReader) read() (gpus []palapi.GPU, err error) {
	if r.lacks == nil {
		r.answers, err = r.b.askAgain(r.answers)
		switch {
		case err == nil:
			return r.answers.SomeGPUs(r.filter, r.live)
		case !lacksAgent(err):
			return nil, err
		}
		r.lacks = err
	}
	client, err := r.b.client()
	if err != nil {
		return nil, err
	}
	defer client.API().Close()
	if r.plain, err = plainly(r.b, client, r.plain); err != nil {
		return nil, err
	}
	gpus = r.plain.SomeGPUs(r.filter)
	if r.live {
		err = query.AddLive(r.b.ctx, &r.reader, client.API(), gpus, error.Error)
	}
	return gpus, err
}

// close prints a note if the answer is incomplete, and returns the exit code.
func (r *gpuReader) close(code int) int {
	if r.lacks == nil {
		return r.answers.close(code)
	}
	client, err := r.b.client()
	if err != nil {
		return r.b.fail(err)
	}
	fmt.Fprintln(r.b.io.err, plainNote(r.b, client, r.lacks))
	return code
}

// clearScreen moves a terminal's cursor to the top left and clears the screen. clearScreen writes
// to [base.raw], because other writers would escape the control characters.
func clearScreen(b *base) { fmt.Fprint(b.raw(), "\x1b[H\x1b[2J") }

// refreshGPUs is how often gpus -live refreshes its output.
const refreshGPUs = 2 * time.Second

// followGPUs prints the current load of GPUs. On a terminal, followGPUs refreshes the output until
// the user interrupts the command.
func (b *base) followGPUs(r *gpuReader) int {
	gpus, err := r.read()
	if err != nil {
		return b.fail(err)
	}
	if b.json || !b.io.terminal {
		return r.close(b.show(gpus, func() { printLive(b, gpus, r.filter) }))
	}
	for {
		clearScreen(b)
		b.write(paint(bold, time.Now().Format(time.TimeOnly)) + "  Ctrl-C quits\n")
		if err != nil {
			b.complain("Error: " + err.Error())
		}
		printLive(b, gpus, r.filter)
		pause(b.ctx, refreshGPUs)
		var next []palapi.GPU
		if next, err = r.read(); err == nil {
			gpus = next
		} else if b.ctx.Err() != nil {
			return 0
		}
	}
}

func printLive(b *base, gpus []palapi.GPU, f palapi.GPUFilter) {
	if len(gpus) == 0 {
		printNoGPUs(b, f)
		return
	}
	length := b.idLength(idLength(gpus))
	index, bus := placeColumns(gpus)
	row := rowWith(true, true, index, bus, true, true, true, true, true, true)
	rows := []string{row("GPU", "Node", "Index", "Bus id", "Utilization", "Memory", "Temp", "Power", "State", "Job")}
	silent := map[string]bool{}
	for _, g := range gpus {
		rows = append(rows, row(shortGPU(g.ID, length), g.Node, indexOf(g), g.BusID, utilization(g), memory(g.Live), temperature(g.Live), power(g.Live), liveState(g, time.Now()), g.Job))
		if g.NotLive != "" && !silent[g.NotLive] {
			silent[g.NotLive] = true
			b.complain("Warning: " + oneLine(g.NotLive))
		}
	}
	b.table(rows)
}

// meterWidth is the width of a bar in columns.
const meterWidth = 10

// bar draws a percentage as a bar of meterWidth columns.
func bar(percent int64) string {
	n := int(min(max(percent, 0), 100)*meterWidth+99) / 100
	return strings.Repeat("█", n) + strings.Repeat("·", meterWidth-n)
}

func utilization(g palapi.GPU) painted {
	if g.Live == nil || g.Live.Utilization == nil {
		return painted{plain, "unknown"}
	}
	p := painted{green, fmt.Sprintf("%s %3d%%", bar(*g.Live.Utilization), *g.Live.Utilization)}
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
