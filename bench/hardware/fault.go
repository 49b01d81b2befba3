// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// faultPTX is a kernel that writes to an address.
//
//go:embed fault.ptx
var faultPTX []byte

// FaultCommand is the name of the hidden subcommand that runs [FaultMain].
const FaultCommand = "fault"

// The faults, which harm only the process that causes them.
const (
	faultPTXBroken = "ptx"     // a kernel that does not compile
	faultMemory    = "memory"  // more memory than the GPU has
	faultAddress   = "address" // a write to an unmapped address, which the driver reports as Xid 13 or 31
)

// nowhere is an address in the first page, which is never mapped.
const nowhere = uint64(16)

// FaultMain causes a fault on a GPU, in a process of its own. The arguments are the fault, the CUDA
// library and the GPU's id. FaultMain prints a line just before the fault, and the driver's error
// after the fault. The exit code is 1 if no fault or another error occurred.
func FaultMain(args []string) int {
	runtime.LockOSThread() // the CUDA context belongs to this thread
	if len(args) != 3 {
		fmt.Println("want FAULT LIBRARY GPU")
		return 2
	}
	ctx, dev, err := openGPU(args[1], args[2])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(faultBegins)
	if err = cause(ctx, dev, args[0]); err == nil {
		err = errors.New("nothing went wrong")
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
	return 0
}

// faultBegins is the line that FaultMain prints just before the fault.
const faultBegins = "begins"

// openGPU returns a context on the GPU with this id.
func openGPU(library, id string) (*cuda.Context, cuda.Device, error) {
	d, err := cuda.Open(library)
	if err != nil {
		return nil, cuda.Device{}, err
	}
	devices, err := d.Devices()
	if err != nil {
		return nil, cuda.Device{}, err
	}
	for _, dev := range devices {
		if dev.UUID == id {
			ctx, err := d.Context(dev)
			return ctx, dev, err
		}
	}
	return nil, cuda.Device{}, fmt.Errorf("the CUDA driver has no GPU %q", id)
}

// cause causes a fault, and returns the driver's error.
func cause(ctx *cuda.Context, dev cuda.Device, fault string) error {
	switch fault {
	case faultPTXBroken:
		_, err := ctx.Load([]byte(".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry pal_broken() { nonsense; }\n"), "pal_broken")
		return err
	case faultMemory:
		_, err := ctx.Alloc(dev.MemoryBytes + 1<<30)
		return err
	}
	fn, err := ctx.Load(faultPTX, "pal_fault")
	if err != nil {
		return err
	}
	done, err := ctx.Event()
	if err != nil {
		return err
	}
	at := nowhere
	return errors.Join(ctx.Launch(fn, cuda.Grid{Blocks: 1, Threads: 1}, &at), ctx.Record(done), ctx.Wait(done))
}

// causeFault starts [FaultMain] on a GPU, and returns the start time of the fault and the driver's
// error. The process sees only this GPU. The process uses no MPS server, because all of the
// server's clients would share the fault.
func (r *run) causeFault(ctx context.Context, id, fault string) (begun time.Time, said string, err error) {
	library := gpu.FindLibrary("/", cmp.Or(r.CUDA, cuda.Library))
	cmd := exec.CommandContext(ctx, r.Self, FaultCommand, fault, library, id)
	cmd.Env = []string{"CUDA_VISIBLE_DEVICES=" + id, "CUDA_CACHE_DISABLE=1", "CUDA_MPS_PIPE_DIRECTORY=/dev/null", "LD_LIBRARY_PATH=" + gpu.LibraryPath(library)}
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return begun, "", err
	}
	for s := bufio.NewScanner(out); s.Scan(); said = s.Text() {
		if s.Text() == faultBegins {
			begun = time.Now()
		}
	}
	if err := cmd.Wait(); err != nil || begun.IsZero() || said == faultBegins {
		return begun, "", fmt.Errorf("fault %q: no answer: %w: %s", fault, err, cmp.Or(said, strings.TrimSpace(stderr.String())))
	}
	return begun, said, nil
}
