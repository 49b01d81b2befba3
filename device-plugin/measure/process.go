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

// errStalled means that the child sent nothing for too long. errEnded means that the child ended
// without a last message.
var (
	errStalled = errors.New("the GPU did not answer: a kernel or the driver hangs")
	errEnded   = errors.New("the measuring process ended")
)

// childError is the reason why a child ended, with the CUDA driver's code if a driver call failed.
type childError struct {
	said string
	code int
}

func (e *childError) Error() string { return e.said }

// process is a running child, as the parent sees it.
type process struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	messages chan message // closed when the child's output ends
	stderr   *errorText
}

// childEnv returns a child's whole environment: settings of CUDA, extra, and the variable with
// which the dynamic linker finds the driver's libraries. The child inherits nothing else, because
// the environment of Nomad's client can contain tokens and keys.
func childEnv(library string, extra ...string) []string {
	env := append([]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_CACHE_DISABLE=1", mpsOff}, extra...)
	path := gpu.LibraryPath(library)
	if path != "" {
		env = append(env, libraryPath+"="+path)
	}
	return env
}

const (
	libraryPath = "LD_LIBRARY_PATH"
	// mpsOff keeps a child away from an MPS server on the machine. An MPS server keeps its context
	// when the child is killed, and a fault of one client affects all.
	mpsOff = "CUDA_MPS_PIPE_DIRECTORY=/dev/null"
)

// childName is the name of children in process lists.
const childName = "nomad-device-pal"

// inGroup makes a command run in its own process group. The whole group is killed when the context
// ends. If this process dies, the kernel kills the command, but not the rest of the group.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}

// library returns the name or path of the CUDA driver library.
func (r Runner) library() string { return gpu.FindLibrary("/", cmp.Or(r.Library, cuda.Library)) }

// start starts the child process for one GPU. The child can see only this GPU.
func (r Runner) start(ctx context.Context, id string, p Plan) (*process, error) {
	library := r.library()
	if !strings.HasPrefix(id, "GPU-") { // NVML's UUID of a Jetson lacks the prefix
		id = "GPU-" + id
	}
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

// read passes on the child's messages until its output ends; close waits for read to end.
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

// order sends one line. It ignores write errors, because reading shows that the child has ended.
func (c *process) order(line string) { _, _ = io.WriteString(c.stdin, line+"\n") }

// next returns the child's next message. next returns an error if the child fails, ends, or is
// silent for longer than patience, or if ctx ends.
func (c *process) next(ctx context.Context, patience time.Duration) (message, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m, ok := <-c.messages:
		switch {
		case !ok && ctx.Err() != nil:
			return m, ctx.Err()
		case !ok:
			return m, fmt.Errorf("%w%s", errEnded, c.stderr.firstLine())
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

// close ends the child and waits for its end. A child that still reads orders ends by itself. If
// kill is true, or the child does not end in time, close sends SIGKILL.
func (c *process) close(kill bool) {
	_ = c.stdin.Close()
	grace := time.AfterFunc(2*time.Second, func() { _ = c.cmd.Cancel() })
	if kill {
		_ = c.cmd.Cancel()
	}
	for range c.messages { // wait until read is done, because Wait closes the pipe from which read reads
	}
	_ = c.cmd.Wait() // the child's messages say how it ended
	grace.Stop()
}

// cpu returns the CPU time of a closed child.
func (c *process) cpu() time.Duration {
	s := c.cmd.ProcessState
	if s == nil {
		return 0
	}
	return s.UserTime() + s.SystemTime()
}

// errorText keeps the start of the child's standard error, because the first line names the cause
// of a crash or an error.
type errorText struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write never fails. After 4 KiB, it drops the rest.
func (t *errorText) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() < 4096 {
		t.text.Write(p)
	}
	return len(p), nil
}

// firstLine returns the first line of the written text, for an error message.
func (t *errorText) firstLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, _, _ := strings.Cut(strings.TrimSpace(t.text.String()), "\n")
	if first == "" {
		return ""
	}
	return ": " + first
}

// List returns the GPUs that the CUDA driver lists in a child.
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
		if _, err := fmt.Sscanf(m.Device.Compute, "%d.%d", &d.Chip.ComputeMajor, &d.Chip.ComputeMinor); err != nil {
			return nil, fmt.Errorf("listing GPUs: compute capability %q: %w", m.Device.Compute, err)
		}
		devices = append(devices, d)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("listing GPUs: the CUDA driver did not answer within %s", gpu.DriverWithin)
	}
	if err != nil {
		return nil, fmt.Errorf("listing GPUs: %w", err)
	}
	return devices, nil
}
