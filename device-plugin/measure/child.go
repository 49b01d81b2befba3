// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/pal"
)

// The child process holds the CUDA context. If the driver hangs, a kernel never ends or a GPU falls
// off the bus, only the child is lost, and killing the child frees the GPU at once. The child reads
// orders, one per line ("run A", "stop"), and runs windows of the ordered class until the next
// order. The child writes messages, one JSON object per line, and exits at the end of its input.

// ChildCommand is the name of the hidden subcommand that runs [Child].
const ChildCommand = "measure-child"

// message is one line of the child's output. Exactly one field is set, but Code can be set with
// Failed.
type message struct {
	// Compiling names the kernel that the driver is compiling now. A message with Compiled always
	// follows, even after a failure.
	Compiling string         `json:"compiling,omitempty"`
	Compiled  *childCompiled `json:"compiled,omitempty"`
	Device    *childDevice   `json:"device,omitempty"`
	Ready     *childReady    `json:"ready,omitempty"`
	Window    *childWindow   `json:"window,omitempty"`
	Stopped   bool           `json:"stopped,omitempty"`
	// Failed is the reason why the child exits, in its last message.
	Failed string `json:"failed,omitempty"`
	Code   int    `json:"code,omitempty"` // the CUDA driver's code, if a driver call failed
}

// childCompiled reports how long compiling a kernel took.
type childCompiled struct {
	Kernel  string  `json:"kernel"`
	Seconds float64 `json:"seconds"`
}

// childDevice reports which GPU the child uses.
type childDevice struct {
	UUID    string                  `json:"uuid"`
	Name    string                  `json:"name"`
	Compute string                  `json:"compute"` // compute capability, "9.0"
	CUDA    string                  `json:"cuda"`    // the driver's CUDA version, "13.0"
	Work    map[pal.AppClass]string `json:"work"`    // see describe
	Skipped []string                `json:"skipped,omitempty"`
}

// childReady reports that the kernels of a class are compiled and its memory is allocated.
type childReady struct {
	Class  pal.AppClass `json:"class"`
	Kernel string       `json:"kernel"`
	// Work is the amount of work of one unit, in Unit·seconds. Peak is the hardware's maximum rate
	// at ClockMHz, in Unit; 0 if unknown.
	Work float64 `json:"work,omitempty"`
	Unit string  `json:"unit,omitempty"`
	Peak float64 `json:"peak,omitempty"`
	// Expected is the share of Peak that a healthy GPU reaches.
	Expected float64 `json:"expected,omitempty"`
	ClockMHz int     `json:"clock_mhz"`
	// ClockBound means that Peak grows in proportion to the SM clock.
	ClockBound bool `json:"clock_bound"`
}

// childWindow is one measured window.
type childWindow struct {
	Class pal.AppClass `json:"class"`
	Units int          `json:"units"`
	Ms    float64      `json:"ms"` // per unit, by the GPU's clock
	Sum   string       `json:"sum"`
}

// childOptions are the parent's options for a child.
type childOptions struct {
	library, uuid string
	windowMs      float64  // approximate length of a window
	avoid         []string // compute kernels to skip
}

// Child is the main function of the child process. It reads orders from in, writes messages to out,
// and returns the exit code.
func Child(o childOptions, in io.Reader, out io.Writer) int {
	// The CUDA context belongs to this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	enc := json.NewEncoder(out)
	c := &child{childOptions: o, send: func(m message) error { return enc.Encode(m) }}
	err := c.serve(orders(in))
	if err == nil || errors.Is(err, io.ErrClosedPipe) {
		return 0
	}
	if err := c.send(failed(err)); err != nil {
		return 2
	}
	return 1
}

// failed returns the last message of a child that ends with err.
func failed(err error) message { return message{Failed: err.Error(), Code: cuda.CodeOf(err)} }

// orders reads lines until the end of input, and then closes the channel. The goroutine lives as
// long as the process, because reading cannot be cancelled.
func orders(in io.Reader) <-chan string {
	out := make(chan string, 16)
	go func() {
		defer close(out)
		for s := bufio.NewScanner(in); s.Scan(); {
			out <- strings.TrimSpace(s.Text())
		}
	}()
	return out
}

type child struct {
	childOptions
	send  func(message) error
	bench *bench
}

func (c *child) serve(orders <-chan string) error {
	ctx, err := c.open()
	if err != nil {
		return err
	}
	err = c.obey(orders)
	if cuda.Sticky(err) {
		return err // the context is lost, and closing it can hang
	}
	return errors.Join(err, ctx.Close())
}

// open finds the GPU and reports it to the parent.
func (c *child) open() (*cuda.Context, error) {
	d, err := cuda.Open(c.library)
	if err != nil {
		return nil, err
	}
	major, minor, err := d.Version()
	if err != nil {
		return nil, err
	}
	devices, err := d.Devices()
	if err != nil {
		return nil, err
	}
	for _, dev := range devices {
		if dev.UUID != c.uuid {
			continue
		}
		if err := supports(dev.Major, dev.Minor); err != nil {
			return nil, fmt.Errorf("GPU %q (%s) has %w", dev.UUID, dev.Name, err)
		}
		ctx, err := d.Context(dev)
		if err != nil {
			return nil, err
		}
		if c.bench, err = newBench(ctx, dev, c.avoid, c.send); err != nil {
			return nil, errors.Join(err, ctx.Close())
		}
		work := map[pal.AppClass]string{}
		for _, class := range pal.AppClasses() {
			work[class] = describe(dev, class, c.bench.compute)
		}
		return ctx, c.send(message{Device: &childDevice{UUID: dev.UUID, Name: dev.Name, Work: work, Skipped: c.bench.skipped,
			Compute: capability(dev), CUDA: fmt.Sprintf("%d.%d", major, minor)}})
	}
	return nil, fmt.Errorf("the CUDA driver has no GPU %q (a MIG GPU cannot be measured as a whole)", c.uuid)
}

// capability formats a GPU's compute capability, such as 9.0.
func capability(dev cuda.Device) string { return fmt.Sprintf("%d.%d", dev.Major, dev.Minor) }

// obey executes orders until the channel is closed.
func (c *child) obey(orders <-chan string) error {
	order, open := <-orders
	for open {
		class, ok := strings.CutPrefix(order, "run ")
		if !ok {
			order, open = <-orders // nothing is running, so wait for an order
			continue
		}
		var err error
		if order, open, err = c.run(pal.AppClass(class), orders); err != nil {
			return err
		}
	}
	return nil
}

// run measures one class, window after window, until the next order, and returns this order.
func (c *child) run(class pal.AppClass, orders <-chan string) (next string, open bool, err error) {
	u, err := c.bench.prepare(class)
	if err != nil {
		return "", false, fmt.Errorf("preparing application class %s: %w", class, err)
	}
	if err := c.send(message{Ready: c.bench.ready(u)}); err != nil {
		return "", false, err
	}
	w, err := newWatch(c.bench.ctx)
	if err != nil {
		return "", false, err
	}
	units := 1
	for {
		select {
		case next, open = <-orders:
			if err := c.bench.release(u); err != nil {
				return "", false, err
			}
			return next, open, c.send(message{Stopped: true})
		default:
		}
		ms, err := w.time(u, units)
		if err != nil {
			return "", false, fmt.Errorf("running application class %s: %w", class, err)
		}
		sum, err := c.bench.sum(u)
		if err != nil {
			return "", false, err
		}
		if err := c.send(message{Window: &childWindow{Class: class, Units: units, Ms: ms, Sum: sum}}); err != nil {
			return "", false, err
		}
		units = max(1, int(c.windowMs/ms+0.5))
	}
}

// ready describes a prepared unit.
func (b *bench) ready(u *unit) *childReady {
	r := &childReady{Class: u.class, Kernel: u.kernel.id, ClockMHz: b.dev.ClockMHz}
	if u.class == pal.ClassB {
		r.Kernel = "mix1:" + u.kernel.id + "+" + idTriad
		return r
	}
	k := u.kernel
	r.Work, r.Unit = u.work/k.scale, k.unit
	r.Peak = k.peak(b.dev, float64(b.dev.ClockMHz)) / k.scale
	r.Expected = k.expected
	r.ClockBound = u.class == pal.ClassA
	return r
}

// watch times units with the GPU's own clock.
type watch struct {
	ctx      *cuda.Context
	from, to cuda.Event
}

func newWatch(ctx *cuda.Context) (*watch, error) {
	from, err := ctx.Event()
	if err != nil {
		return nil, err
	}
	to, err := ctx.Event()
	return &watch{ctx, from, to}, err
}

// time returns the time of one unit in milliseconds, averaged over n units.
func (w *watch) time(u *unit, n int) (float64, error) {
	ms := 0.0
	err := inTurn(
		func() error { return w.ctx.Record(w.from) },
		func() error { return inTurn(slices.Repeat([]func() error{u.launch}, n)...) },
		func() error { return w.ctx.Record(w.to) },
		func() error { return w.ctx.Wait(w.to) },
		func() (err error) { ms, err = w.ctx.Milliseconds(w.from, w.to); return err },
	)
	if err != nil {
		return 0, err
	}
	if ms <= 0 {
		return 0, fmt.Errorf("CUDA events measured %v ms for %d units of work; the time must be positive", ms, n)
	}
	return ms / float64(n), nil
}
