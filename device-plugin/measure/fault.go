// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

//go:embed ptx/fault.ptx
var ptxFault []byte

// Fault is an error that a child causes on a GPU on purpose. It harms only the process that
// causes it.
type Fault string

// The faults.
const (
	FaultPTX     Fault = "ptx"     // a kernel that does not compile
	FaultMemory  Fault = "memory"  // more memory than the GPU has
	FaultAddress Fault = "address" // a write to an unmapped address, which the driver reports as Xid 13 or 31
)

// faultKernel returns the kernel that writes to an address.
func faultKernel() kernel {
	return kernel{id: "fault", entry: "pal_fault", ptx: ptxFault, threads: computeThread}
}

// nowhere is an address in the first page, which is never mapped.
const nowhere = uint64(16)

// inject causes a fault. If it returns no error, the fault did not happen.
func (b *bench) inject(f Fault) error {
	switch f {
	case FaultPTX:
		_, err := b.load(kernel{id: "broken", entry: "pal_broken", ptx: []byte(".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry pal_broken() { nonsense; }\n")})
		return err
	case FaultMemory:
		_, err := b.ctx.Alloc(b.dev.MemoryBytes + 1<<30)
		return err
	case FaultAddress:
		fn, err := b.load(faultKernel())
		if err != nil {
			return err
		}
		at := nowhere
		return errors.Join(b.ctx.Launch(fn, cuda.Grid{Blocks: 1, Threads: 1}, &at), b.ctx.Record(b.idle), b.ctx.Wait(b.idle))
	}
	return fmt.Errorf("fault %q is unknown", f)
}

// errNoFault means that the fault did not happen.
var errNoFault = errors.New("nothing went wrong")

// Fault makes a child process cause a fault on a GPU. It returns the start time of the fault and
// the child's error. err is set if there was no fault, or no answer.
func (r Runner) Fault(ctx context.Context, d gpu.Device, f Fault, p Plan) (begun time.Time, said string, err error) {
	s := &session{Runner: r, plan: p, target: Target{Device: d}, result: Result{GPU: d.ID}}
	if s.child, err = r.start(ctx, d.ID, p); err != nil {
		return begun, "", err
	}
	defer func() { s.child.close(true) }()
	m, err := s.next(ctx)
	if err != nil {
		return begun, "", err
	}
	if m.Device == nil {
		return begun, "", errors.New("the first message of the measuring process names no GPU")
	}
	begun = time.Now()
	s.child.order("fault " + string(f))
	m, err = s.next(ctx)
	switch {
	case err == nil && m.Stopped:
		return begun, "", errNoFault
	case err == nil, errors.Is(err, errStalled), errors.Is(err, errEnded), ctx.Err() != nil:
		return begun, "", fmt.Errorf("fault %q: no answer: %w", f, err)
	}
	return begun, err.Error(), nil
}

// Variant is one kernel, with the plan that makes a session measure it.
type Variant struct {
	Kernel string
	Plan   Plan // only Classes and Avoid are set
}

// Variants returns the kernels that run on a GPU, the strongest first.
func Variants(d gpu.Device) []Variant {
	dev := cuda.Device{Major: d.ComputeMajor, Minor: d.ComputeMinor}
	var out []Variant
	var stronger []string
	for _, k := range computeKernels() {
		if k.suits(dev) {
			out = append(out, Variant{k.id, Plan{Classes: []pal.AppClass{pal.ClassA}, Avoid: stronger}})
			stronger = append(stronger[:len(stronger):len(stronger)], k.id)
		}
	}
	return append(out, Variant{idTriad, Plan{Classes: []pal.AppClass{pal.ClassC}}}, Variant{idGather, Plan{Classes: []pal.AppClass{pal.ClassD}}})
}

// Utilization counts as use only if all of looksAtLoad readings, loadPause apart, are above 0. The
// start of NVML, or a GPU that wakes up, can cause the first reading.
const (
	looksAtLoad = 4
	loadPause   = time.Second
)

// InUse reports what is using the GPUs with the given ids. Unused GPUs are left out. The parameter
// all lists every GPU of the node.
func (r Runner) InUse(all []gpu.Device, ids []string) map[string]string {
	uses, _ := r.uses(all, ids, nil)
	for range looksAtLoad - 1 {
		loaded := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !uses[id].busy })
		if len(loaded) == 0 {
			break
		}
		time.Sleep(loadPause)
		again, _ := r.uses(all, loaded, nil)
		maps.Copy(uses, again)
	}
	out := map[string]string{}
	for id, u := range uses {
		if why := u.String(); why != "" {
			out[id] = why
		}
	}
	return out
}
