// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Context runs kernels on one GPU. It belongs to the OS thread that made it.
type Context struct {
	d   *Driver
	dev Device
}

// Context makes the GPU's primary context current on this thread.
func (d *Driver) Context(dev Device) (*Context, error) {
	var ctx uintptr
	if code := d.contextRetain(&ctx, dev.handle); code != 0 {
		return nil, d.fail(fmt.Sprintf("opening GPU %q", dev.UUID), code)
	}
	if code := d.contextSet(ctx); code != 0 {
		return nil, d.fail(fmt.Sprintf("using GPU %q", dev.UUID), code)
	}
	return &Context{d, dev}, nil
}

// Close gives the context back, and with it all that was made in it.
func (c *Context) Close() error {
	if code := c.d.contextRelease(c.dev.handle); code != 0 {
		return c.d.fail("closing the GPU", code)
	}
	return nil
}

// Function is a kernel.
type Function uintptr

// Options of cuModuleLoadDataEx.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// Load compiles PTX and gives its kernel of that name.
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
	if code := c.d.moduleLoad(&mod, &image[0], uint32(len(options)), &options[0], &values[0]); code != 0 {
		err := c.d.fail(op, code).(*Error)
		err.Log = strings.Join(strings.Fields(cString(log)), " ")
		return 0, err
	}
	name := append([]byte(entry), 0)
	if code := c.d.moduleFunction(&fn, mod, &name[0]); code != 0 {
		return 0, c.d.fail(op, code)
	}
	return Function(fn), nil
}

// Memory is a piece of the GPU's memory.
type Memory struct {
	Address uint64
	Bytes   uint64
}

// Alloc takes memory; its content is undefined.
func (c *Context) Alloc(bytes uint64) (Memory, error) {
	m := Memory{Bytes: bytes}
	if code := c.d.memAlloc(&m.Address, bytes); code != 0 {
		return Memory{}, c.d.fail(fmt.Sprintf("taking %d MiB of the GPU's memory", bytes>>20), code)
	}
	return m, nil
}

// Free gives memory back.
func (c *Context) Free(m Memory) error {
	if code := c.d.memFree(m.Address); code != 0 {
		return c.d.fail("giving memory back", code)
	}
	return nil
}

// Fill sets every 32-bit word.
func (c *Context) Fill(m Memory, word uint32) error {
	if code := c.d.memset32(m.Address, word, m.Bytes/4); code != 0 {
		return c.d.fail("filling the GPU's memory", code)
	}
	return nil
}

// Write copies from here to the start of m.
func (c *Context) Write(m Memory, from []byte) error {
	if uint64(len(from)) > m.Bytes {
		return fmt.Errorf("writing %d bytes into %d", len(from), m.Bytes)
	}
	if code := c.d.copyHtoD(m.Address, &from[0], uint64(len(from))); code != 0 {
		return c.d.fail("writing the GPU's memory", code)
	}
	return nil
}

// Read copies the start of m, after all launched kernels have ended.
func (c *Context) Read(m Memory, into []byte) error {
	if uint64(len(into)) > m.Bytes {
		return fmt.Errorf("reading %d bytes of %d", len(into), m.Bytes)
	}
	if code := c.d.copyDtoH(&into[0], m.Address, uint64(len(into))); code != 0 {
		return c.d.fail("reading the GPU's memory", code)
	}
	return nil
}

// Grid is the shape of a launch: blocks of threads, with dynamic shared memory.
type Grid struct {
	Blocks, Threads, SharedBytes uint32
}

// Launch starts a kernel. Arguments are pointers to the values, of the types
// that the kernel's parameters have: *uint64, *uint32 or *float32.
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
	if code := c.d.launch(uintptr(fn), g.Blocks, 1, 1, g.Threads, 1, 1, g.SharedBytes, 0, &params[0], nil); code != 0 {
		return c.d.fail("launching a kernel", code)
	}
	return nil
}

// Event marks a point in the sequence of launches.
type Event uintptr

// blockingSync is CU_EVENT_BLOCKING_SYNC: waiting for the event sleeps, where it
// else keeps a core busy.
const blockingSync = 1

// Event makes one.
func (c *Context) Event() (Event, error) {
	var ev uintptr
	if code := c.d.eventCreate(&ev, blockingSync); code != 0 {
		return 0, c.d.fail("making an event", code)
	}
	return Event(ev), nil
}

// Record puts the event behind everything launched so far.
func (c *Context) Record(e Event) error {
	if code := c.d.eventRecord(uintptr(e), 0); code != 0 {
		return c.d.fail("recording an event", code)
	}
	return nil
}

// Wait returns when the GPU has reached the event.
func (c *Context) Wait(e Event) error {
	if code := c.d.eventSync(uintptr(e)); code != 0 {
		return c.d.fail("waiting for a kernel", code)
	}
	return nil
}

// Milliseconds is the GPU's time between two events that it has reached.
func (c *Context) Milliseconds(from, to Event) (float64, error) {
	var ms float32
	if code := c.d.eventElapsed(&ms, uintptr(from), uintptr(to)); code != 0 {
		return 0, c.d.fail("reading a kernel's time", code)
	}
	return float64(ms), nil
}
