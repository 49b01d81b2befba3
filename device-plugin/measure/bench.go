// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/pal"
)

// unit is a fixed piece of work of one class, ready to be launched.
type unit struct {
	class  pal.AppClass
	kernel kernel // the one whose rate is reported; for the mix, the compute kernel
	// work is what kernel does in one unit, in FLOP, bytes or loads; 0 for the
	// mix, which does two kinds.
	work   float64
	launch func() error
	out    cuda.Memory // its result, the same after every launch
	memory []cuda.Memory
}

// bench prepares units on one GPU.
type bench struct {
	ctx     *cuda.Context
	dev     cuda.Device
	compute kernel
	fn      cuda.Function // of compute
	// skipped says why stronger kernels were not taken.
	skipped []string
}

// seed starts the kernels' random operands. Operands must be random, for zeros
// draw less power and run 13 % faster; but the same for every launch, so that
// a wrong result shows.
const seed = 1

// newBench finds the strongest compute kernel that the GPU and driver run.
func newBench(ctx *cuda.Context, dev cuda.Device) (*bench, error) {
	b := &bench{ctx: ctx, dev: dev}
	for _, k := range computeKernels() {
		if !k.suits(dev) {
			continue
		}
		fn, err := ctx.Load(k.ptx, k.entry)
		if err == nil {
			b.compute, b.fn = k, fn
			return b, nil
		}
		if cuda.Sticky(err) {
			return nil, err
		}
		b.skipped = append(b.skipped, err.Error())
	}
	if len(b.skipped) == 0 {
		return nil, fmt.Errorf("GPU %q (%s) has compute capability %d.%d: 7.0 is the least that the kernels run on",
			dev.UUID, dev.Name, dev.Major, dev.Minor)
	}
	return nil, fmt.Errorf("no kernel runs on GPU %q: %s", dev.UUID, strings.Join(b.skipped, "; "))
}

// prepare makes the unit of a class.
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

// release gives a unit's memory back.
func (b *bench) release(u *unit) error {
	var errs []error
	for _, m := range u.memory {
		errs = append(errs, b.ctx.Free(m))
	}
	u.memory = nil
	return errors.Join(errs...)
}

// alloc takes memory for the unit and fills it with a word.
func (b *bench) alloc(u *unit, bytes uint64, word uint32) (cuda.Memory, error) {
	m, err := b.ctx.Alloc(bytes)
	if err != nil {
		return m, err
	}
	u.memory = append(u.memory, m)
	return m, b.ctx.Fill(m, word)
}

// outBytes is room for one word a thread.
func outBytes(g cuda.Grid) uint64 { return 4 * uint64(g.Blocks) * uint64(g.Threads) }

// computeLaunch is a launch of the compute kernel that takes about ms.
func (b *bench) computeLaunch(u *unit, ms float64) (launch func() error, work float64, err error) {
	g := b.compute.grid(b.dev)
	if u.out, err = b.alloc(u, outBytes(g), 0); err != nil {
		return nil, 0, err
	}
	iters := b.compute.iterations(b.dev, ms)
	work = float64(iters) * b.compute.workPerIteration(b.dev)
	out, sd, x, y := u.out.Address, uint32(seed), float32(0.5), float32(1)
	if b.compute.id == idFFMA {
		return func() error { return b.ctx.Launch(b.fn, g, &out, &iters, &x, &y) }, work, nil
	}
	return func() error { return b.ctx.Launch(b.fn, g, &out, &iters, &sd) }, work, nil
}

// one is the word of the float 1.
const one = 0x3f800000

// triadLaunch is as many launches of the triad as take about ms.
func (b *bench) triadLaunch(u *unit, ms float64) (launch func() error, work float64, err error) {
	k := triadKernel()
	fn, err := b.ctx.Load(k.ptx, k.entry)
	if err != nil {
		return nil, 0, err
	}
	n := triadSteps(b.dev)
	var buf [3]cuda.Memory
	for i := range buf {
		if buf[i], err = b.alloc(u, 16*n, one); err != nil {
			return nil, 0, err
		}
	}
	if u.out.Bytes == 0 {
		u.out = buf[0]
	}
	times, g, factor := triadLaunches(b.dev, ms), k.grid(b.dev), float32(2)
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

// prepareMix alternates compute and memory work, about as long each.
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
		for range mixPairs {
			if err := compute(); err != nil {
				return err
			}
			if err := triad(); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

func (b *bench) prepareGather(u *unit) error {
	k := u.kernel
	fn, err := b.ctx.Load(k.ptx, k.entry)
	if err != nil {
		return err
	}
	g := k.grid(b.dev)
	if u.out, err = b.alloc(u, outBytes(g), 0); err != nil {
		return err
	}
	size := bufferBytes(b.dev, gatherBytes, 8)
	data, err := b.alloc(u, size, 1)
	if err != nil {
		return err
	}
	iters, mask, sd := k.iterations(b.dev, unitMs), size-4, uint32(seed)
	u.work = float64(iters) * k.workPerIteration(b.dev)
	u.launch = func() error { return b.ctx.Launch(fn, g, &u.out.Address, &data.Address, &mask, &iters, &sd) }
	return nil
}

// maxSummed is how much of a result is read back to compare it.
const maxSummed = 1 << 20

// sum is a checksum of the unit's result.
func (b *bench) sum(u *unit) (string, error) {
	buf := make([]byte, min(maxSummed, u.out.Bytes))
	if err := b.ctx.Read(u.out, buf); err != nil {
		return "", err
	}
	h := fnv.New64a()
	h.Write(buf)
	return fmt.Sprintf("%016x", binary.BigEndian.Uint64(h.Sum(nil))), nil
}
