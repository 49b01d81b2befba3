// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/pal"
)

// unit is a fixed piece of work of one class, ready to be launched.
type unit struct {
	class  pal.AppClass
	kernel kernel // kernel whose rate is reported; for the mix, the compute kernel
	// work is the kernel's work per unit, in FLOP, bytes or loads. For the mix, which does two
	// kinds of work, work is 0.
	work   float64
	launch func() error
	out    cuda.Memory // the unit's result, the same after every launch
	memory []cuda.Memory
}

// bench prepares units on one GPU.
type bench struct {
	ctx     *cuda.Context
	dev     cuda.Device
	compute kernel
	fn      cuda.Function // the compute kernel
	// skipped holds the reasons why stronger compute kernels are not used.
	skipped []string
	// send sends a message to the parent, for example which kernel is being compiled.
	send func(message) error

	loaded      map[string]cuda.Function // by kernel id
	fill, check cuda.Function            // kernels that fill memory and sum up results; their time does not count
	total       cuda.Memory              // the output of check
	idle        cuda.Event               // recorded after all launches
}

// seed is the seed of the kernels' random operands. Operands must be random, because zeros draw
// less power and run 13 % faster. All launches and GPUs must have the same operands, so that a
// wrong result shows.
const seed = 1

// newBench returns a bench with the strongest compute kernel that GPU and driver can run, except
// the kernels in avoid.
func newBench(ctx *cuda.Context, dev cuda.Device, avoid []string, send func(message) error) (*bench, error) {
	b := &bench{ctx: ctx, dev: dev, send: send, loaded: map[string]cuda.Function{}}
	if err := b.prepareData(); err != nil {
		return nil, err
	}
	for _, k := range computeKernels() {
		if !k.suits(dev) || slices.Contains(avoid, k.id) {
			continue
		}
		fn, err := b.load(k)
		if err == nil {
			b.compute, b.fn = k, fn
			return b, nil
		}
		if cuda.Sticky(err) {
			return nil, err
		}
		b.skipped = append(b.skipped, err.Error())
	}
	for _, id := range avoid {
		b.skipped = append(b.skipped, "kernel "+id+" is left out")
	}
	return nil, fmt.Errorf("no kernel runs on GPU %q: %s", dev.UUID, strings.Join(b.skipped, "; "))
}

// load compiles a kernel unless it is compiled already. The driver's compiler can take a long time
// or hang, so load first sends the parent a message.
func (b *bench) load(k kernel) (cuda.Function, error) {
	if fn, ok := b.loaded[k.id]; ok {
		return fn, nil
	}
	if err := b.send(message{Compiling: k.id}); err != nil {
		return 0, err
	}
	begin := time.Now()
	fn, err := b.ctx.Load(k.ptx, k.entry)
	if err == nil {
		b.loaded[k.id] = fn
	}
	return fn, errors.Join(err, b.send(message{Compiled: &childCompiled{k.id, time.Since(begin).Seconds()}}))
}

// prepareData loads the kernels that fill and check memory.
func (b *bench) prepareData() (err error) {
	if b.fill, err = b.load(dataKernel(idFill)); err != nil {
		return err
	}
	if b.check, err = b.load(dataKernel(idSum)); err != nil {
		return err
	}
	if b.total, err = b.ctx.Alloc(16); err != nil {
		return err
	}
	b.idle, err = b.ctx.Event()
	return err
}

// prepare builds the unit of a class.
func (b *bench) prepare(class pal.AppClass) (*unit, error) {
	u := &unit{class: class}
	var err error
	switch class {
	case pal.ClassA:
		u.kernel = b.compute
		u.launch, u.work, err = b.computeLaunch(u, unitMs)
	case pal.ClassB:
		err = b.prepareMix(u)
	case pal.ClassC:
		u.kernel = triadKernel()
		u.launch, u.work, err = b.triadLaunch(u, unitMs)
	case pal.ClassD:
		u.kernel = gatherKernel()
		err = b.prepareGather(u)
	default:
		err = fmt.Errorf("application class %q has no kernel", class)
	}
	if err != nil {
		return nil, errors.Join(err, b.release(u))
	}
	return u, nil
}

func (b *bench) release(u *unit) error {
	var errs []error
	for _, m := range u.memory {
		errs = append(errs, b.ctx.Free(m))
	}
	u.memory = nil
	return errors.Join(errs...)
}

func (b *bench) alloc(u *unit, bytes uint64) (cuda.Memory, error) {
	m, err := b.ctx.Alloc(bytes)
	if err != nil {
		return m, err
	}
	u.memory = append(u.memory, m)
	return m, nil
}

// content describes how random words become operands: which bits are kept, and which are set.
type content struct{ keep, set uint32 }

var (
	randomWords  = content{0xffffffff, 0}
	randomFloats = content{0x807fffff, 0x3f000000} // ±[0.5, 1)
)

// random allocates memory for the unit and fills it with random words. Constants would draw
// less power, and could be compressed.
func (b *bench) random(u *unit, bytes uint64, c content, from uint32) (cuda.Memory, error) {
	m, err := b.alloc(u, bytes)
	if err != nil {
		return m, err
	}
	n := bytes / 16
	return m, b.ctx.Launch(b.fill, b.dataGrid(), &m.Address, &n, &c.keep, &c.set, &from)
}

// dataGrid returns the launch shape of the kernels that fill and check.
func (b *bench) dataGrid() cuda.Grid { return dataKernel(idFill).grid(b.dev) }

// outBytes returns the size of an output with one word per thread, in bytes.
func outBytes(g cuda.Grid) uint64 { return 4 * uint64(g.Blocks) * uint64(g.Threads) }

// computeLaunch returns a function that launches the compute kernel for about ms milliseconds.
func (b *bench) computeLaunch(u *unit, ms float64) (launch func() error, work float64, err error) {
	g := b.compute.grid(b.dev)
	if u.out, err = b.alloc(u, outBytes(g)); err != nil {
		return nil, 0, err
	}
	iters := b.compute.iterations(b.dev, ms)
	work = float64(iters) * b.compute.workPerIteration(b.dev)
	out, sd := u.out.Address, uint32(seed)
	return func() error { return b.ctx.Launch(b.fn, g, &out, &iters, &sd) }, work, nil
}

// triadLaunch returns a function that launches the triad for about ms milliseconds in total.
func (b *bench) triadLaunch(u *unit, ms float64) (launch func() error, work float64, err error) {
	k := triadKernel()
	fn, err := b.load(k)
	if err != nil {
		return nil, 0, err
	}
	n := triadSteps(b.dev)
	var buf [3]cuda.Memory
	for i := range buf {
		if buf[i], err = b.random(u, 16*n, randomFloats, seed+uint32(i)); err != nil {
			return nil, 0, err
		}
	}
	if u.out.Bytes == 0 {
		u.out = buf[0]
	}
	times := triadLaunches(b.dev, ms)
	g := k.grid(b.dev)
	factor := float32(2)
	launch = func() error {
		for range times {
			if err := b.ctx.Launch(fn, g, &buf[0].Address, &buf[1].Address, &buf[2].Address, &n, &factor); err != nil {
				return err
			}
		}
		return nil
	}
	return launch, float64(times) * float64(n) * k.workPerIteration(b.dev), nil
}

// prepareMix prepares a unit that alternates compute and memory work, with about the same time for
// each.
func (b *bench) prepareMix(u *unit) error {
	u.kernel = b.compute
	compute, _, err := b.computeLaunch(u, mixPartMs)
	if err != nil {
		return err
	}
	triad, _, err := b.triadLaunch(u, mixPartMs)
	if err != nil {
		return err
	}
	u.launch = func() error {
		return inTurn(slices.Repeat([]func() error{compute, triad}, mixPairs)...)
	}
	return nil
}

func (b *bench) prepareGather(u *unit) error {
	k := u.kernel
	fn, err := b.load(k)
	if err != nil {
		return err
	}
	g := k.grid(b.dev)
	if u.out, err = b.alloc(u, outBytes(g)); err != nil {
		return err
	}
	size := bufferBytes(b.dev, gatherBytes, 8)
	data, err := b.random(u, size, randomWords, seed)
	if err != nil {
		return err
	}
	iters := k.iterations(b.dev, unitMs)
	mask := size - 4
	sd := uint32(seed)
	u.work = float64(iters) * k.workPerIteration(b.dev)
	u.launch = func() error { return b.ctx.Launch(fn, g, &u.out.Address, &data.Address, &mask, &iters, &sd) }
	return nil
}

// sum lets the GPU compute a checksum of the unit's whole result, and returns it.
func (b *bench) sum(u *unit) (string, error) {
	n := u.out.Bytes / 16
	buf := make([]byte, 8)
	err := inTurn(
		func() error { return b.ctx.Fill(b.total, 0) },
		func() error { return b.ctx.Launch(b.check, b.dataGrid(), &b.total.Address, &u.out.Address, &n) },
		func() error { return b.ctx.Record(b.idle) },
		func() error { return b.ctx.Wait(b.idle) }, // a copy would keep a core busy while it waits
		func() error { return b.ctx.Read(b.total, buf) },
	)
	return fmt.Sprintf("%016x", binary.LittleEndian.Uint64(buf)), err
}

// inTurn runs steps until one fails.
func inTurn(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
