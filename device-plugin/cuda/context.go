// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Context runs kernels on one GPU. Use a Context only on the OS thread that made the Context.
type Context struct {
	d   *Driver
	dev Device
}

// Context makes the GPU's primary context current on this thread.
func (d *Driver) Context(dev Device) (*Context, error) {
	var ctx uintptr
	if err := d.check(fmt.Sprintf("opening GPU %q", dev.UUID), d.contextRetain(&ctx, dev.handle)); err != nil {
		return nil, err
	}
	if err := d.check(fmt.Sprintf("using GPU %q", dev.UUID), d.contextSet(ctx)); err != nil {
		return nil, err
	}
	return &Context{d, dev}, nil
}

// Close releases the context and everything created in it.
func (c *Context) Close() error {
	return c.d.check("closing the GPU", c.d.contextRelease(c.dev.handle))
}

// Function is a loaded kernel.
type Function uintptr

// Options of cuModuleLoadDataEx.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// Load compiles PTX and returns the kernel with the name entry.
func (c *Context) Load(ptx []byte, entry string) (Function, error) {
	op := fmt.Sprintf("compiling kernel %q", entry)
	image := append(append([]byte(nil), ptx...), 0)
	log := make([]byte, 4096)
	options := []int32{jitErrorLog, jitErrorLogSize}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&log[0])
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	var mod, fn uintptr
	err := c.d.check(op, c.d.moduleLoad(&mod, &image[0], uint32(len(options)), &options[0], &values[0]))
	if failed, ok := err.(*Error); ok {
		failed.Log = strings.Join(strings.Fields(unix.ByteSliceToString(log)), " ")
		return 0, failed
	}
	name := append([]byte(entry), 0)
	err = c.d.check(op, c.d.moduleFunction(&fn, mod, &name[0]))
	return Function(fn), err
}

// Memory is an allocation in the GPU's memory.
type Memory struct {
	Address uint64
	Bytes   uint64
}

// Alloc allocates memory; its content is undefined.
func (c *Context) Alloc(bytes uint64) (Memory, error) {
	m := Memory{Bytes: bytes}
	err := c.d.check(fmt.Sprintf("allocating %d MiB of the GPU's memory", bytes>>20), c.d.memAlloc(&m.Address, bytes))
	return m, err
}

// Free frees memory.
func (c *Context) Free(m Memory) error {
	return c.d.check("freeing memory", c.d.memFree(m.Address))
}

// Fill sets every 32-bit word of m to word.
func (c *Context) Fill(m Memory, word uint32) error {
	return c.d.check("filling the GPU's memory", c.d.memset32(m.Address, word, m.Bytes/4))
}

// Read waits until all launched kernels have ended, and then copies the start of m.
func (c *Context) Read(m Memory, into []byte) error {
	if uint64(len(into)) > m.Bytes {
		return fmt.Errorf("reading %d bytes of %d", len(into), m.Bytes)
	}
	return c.d.check("reading the GPU's memory", c.d.copyDtoH(&into[0], m.Address, uint64(len(into))))
}

// Grid is the shape of a launch: number of blocks, threads per block, bytes of dynamic
// shared memory.
type Grid struct {
	Blocks, Threads, SharedBytes uint32
}

// Launch starts a kernel. Each argument is a pointer to a value of its parameter's type:
// *uint64, *uint32 or *float32.
func (c *Context) Launch(fn Function, g Grid, args ...any) error {
	params := make([]pointer, len(args))
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, a := range args {
		switch p := a.(type) {
		case *uint64:
			params[i] = pointer(p)
		case *uint32:
			params[i] = pointer(p)
		case *float32:
			params[i] = pointer(p)
		default:
			return fmt.Errorf("kernel argument %d is a %T", i, a)
		}
		pin.Pin(params[i])
	}
	pin.Pin(&params[0])
	code := c.d.launch(uintptr(fn), g.Blocks, 1, 1, g.Threads, 1, 1, g.SharedBytes, 0, &params[0], nil)
	return c.d.check("launching a kernel", code)
}

// Event marks a point in the sequence of launches.
type Event uintptr

// blockingSync is CU_EVENT_BLOCKING_SYNC: a thread that waits for the event sleeps instead
// of keeping a core busy.
const blockingSync = 1

// Event creates an event.
func (c *Context) Event() (Event, error) {
	var ev uintptr
	err := c.d.check("creating an event", c.d.eventCreate(&ev, blockingSync))
	return Event(ev), err
}

// Record places the event after everything launched so far.
func (c *Context) Record(e Event) error {
	return c.d.check("recording an event", c.d.eventRecord(uintptr(e), 0))
}

// Wait returns when the GPU has reached the event.
func (c *Context) Wait(e Event) error {
	return c.d.check("waiting for a kernel", c.d.eventSync(uintptr(e)))
}

// Milliseconds returns the time between two events that the GPU has reached, by the GPU's clock.
func (c *Context) Milliseconds(from, to Event) (float64, error) {
	var ms float32
	err := c.d.check("reading a kernel's time", c.d.eventElapsed(&ms, uintptr(from), uintptr(to)))
	return float64(ms), err
}
