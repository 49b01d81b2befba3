// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// errStalled: the child said nothing for too long. errEnded: it ended without a
// last message.
var (
	errStalled = errors.New("the GPU did not answer: a kernel or the driver hangs")
	errEnded   = errors.New("the measuring process ended")
)

// childError is why a child ended, with the CUDA driver's code if there is one.
type childError struct {
	said string
	code int
}

func (e *childError) Error() string { return e.said }

// process is a running child, seen from its parent.
type process struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	messages chan message // closed when the child's output ends
	stderr   *errorText
}

// childEnv is all that a child gets of this process's environment: what finds
// the driver's libraries. Nomad's client may have tokens and keys in its own.
func childEnv(library string, extra ...string) []string {
	env := append([]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_CACHE_DISABLE=1", mpsOff}, extra...)
	if path := gpu.LibraryPath(library); path != "" {
		env = append(env, libraryPath+"="+path)
	}
	return env
}

const (
	libraryPath = "LD_LIBRARY_PATH"
	// mpsOff keeps a child off a multi-process server that runs on the machine: a
	// server keeps its context when the child is killed, and shares its faults.
	mpsOff = "CUDA_MPS_PIPE_DIRECTORY=/dev/null"
)

// childName is how a child shows in lists of processes.
const childName = "nomad-device-pal"

// inGroup makes a command run in its own process group. The group is killed
// when the context ends, and dies with this process.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}

// library is the path of the CUDA driver's library.
func (r Runner) library() string { return gpu.FindLibrary("/", cmp.Or(r.Library, cuda.Library)) }

// start runs the child for one GPU. It sees only that GPU.
func (r Runner) start(ctx context.Context, id string, p Plan) (*process, error) {
	library := r.library()
	args := append(slices.Clone(r.Self[1:]), "-gpu", id, "-window", p.Window.String(), "-library", library, "-avoid", strings.Join(p.Avoid, ","))
	cmd := exec.CommandContext(ctx, r.Self[0], args...)
	cmd.Args[0] = childName
	cmd.Env = childEnv(library, "CUDA_VISIBLE_DEVICES="+id)
	inGroup(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the measuring process: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the measuring process: %w", err)
	}
	c := &process{cmd: cmd, stdin: stdin, messages: make(chan message, 64), stderr: &errorText{}}
	cmd.Stderr = c.stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the measuring process: %w", err)
	}
	go c.read(stdout)
	return c, nil
}

// read passes messages on until the output ends; close waits for it.
func (c *process) read(stdout io.Reader) {
	defer close(c.messages)
	s := bufio.NewScanner(stdout)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var m message
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			m = message{Failed: fmt.Sprintf("measuring process wrote %q: %v", s.Text(), err)}
		}
		c.messages <- m
	}
}

// order sends one line; that the child is gone shows when reading.
func (c *process) order(line string) { _, _ = io.WriteString(c.stdin, line+"\n") }

// next returns the child's next message. It is an error if the child fails,
// ends, or is silent for longer than patience, or if ctx ends.
func (c *process) next(ctx context.Context, patience time.Duration) (message, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-c.messages:
		switch {
		case !ok && ctx.Err() != nil:
			return m, ctx.Err()
		case !ok:
			return m, fmt.Errorf("%w%s", errEnded, c.stderr.said())
		case m.Failed != "":
			return m, &childError{m.Failed, m.Code}
		}
		return m, nil
	case <-timer.C:
		return message{}, errStalled
	case <-ctx.Done():
		return message{}, ctx.Err()
	}
}

// close ends the child and waits for it: kindly where it still listens, by
// SIGKILL where kill says so or it does not end in time.
func (c *process) close(kill bool) {
	_ = c.stdin.Close()
	grace := time.AfterFunc(2*time.Second, func() { _ = c.cmd.Cancel() })
	if kill {
		_ = c.cmd.Cancel()
	}
	for range c.messages { // until read is done, as Wait closes what it reads
	}
	_ = c.cmd.Wait() // how it ended is in its messages
	grace.Stop()
}

// cpu is what the child took of the machine's cores, once it is closed.
func (c *process) cpu() time.Duration {
	s := c.cmd.ProcessState
	if s == nil {
		return 0
	}
	return s.UserTime() + s.SystemTime()
}

// errorText keeps the start of what the child wrote to its standard error: its
// first line has the cause, of a crash as of an error.
type errorText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write never fails; it keeps at most 4 KiB.
func (t *errorText) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() < 4096 {
		t.text.Write(p)
	}
	return len(p), nil
}

// said is what was written, for an error message.
func (t *errorText) said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, _, _ := strings.Cut(strings.TrimSpace(t.text.String()), "\n")
	if first == "" {
		return ""
	}
	return ": " + first
}

// List asks the CUDA driver for its GPUs, in a child as always.
func (r Runner) List(ctx context.Context) ([]gpu.Device, error) {
	limited, cancel := context.WithTimeout(ctx, gpu.DriverWithin)
	defer cancel()
	library := r.library()
	cmd := exec.CommandContext(limited, r.Self[0], append(slices.Clone(r.Self[1:]), "-list", "-library", library)...)
	cmd.Env = childEnv(library)
	inGroup(cmd)
	out, err := cmd.Output()
	var devices []gpu.Device
	for line := range strings.Lines(string(out)) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return nil, fmt.Errorf("listing GPUs: the measuring process wrote %q", line)
		}
		if m.Failed != "" {
			return nil, &childError{m.Failed, m.Code}
		}
		d := gpu.Device{ID: m.Device.UUID, Model: m.Device.Name}
		if _, err := fmt.Sscanf(m.Device.Compute, "%d.%d", &d.ComputeMajor, &d.ComputeMinor); err != nil {
			return nil, fmt.Errorf("listing GPUs: compute capability %q: %w", m.Device.Compute, err)
		}
		devices = append(devices, d)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("listing GPUs: the CUDA driver does not answer within %s", gpu.DriverWithin)
	}
	if err != nil {
		return nil, fmt.Errorf("listing GPUs: %w", err)
	}
	return devices, nil
}
