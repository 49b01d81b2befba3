// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// NVIDIA's MPS control daemon is a service of the node, which the plugin neither starts nor stops.
// The plugin asks whether the daemon answers. Tasks can write to the daemon's pipe directory, and a
// task may be hostile. So the plugin opens no file there. It limits the time and the output of the
// program that it runs, and passes on no environment.

// pipes lists the pipe directories of the MPS control daemons that the plugin asks; none for
// emulated GPUs.
func (c Config) pipes() (pipes []string) {
	for _, b := range c.Sharing {
		if b.Mode == MPS && c.Backend == "nvml" && !slices.Contains(pipes, b.PipeDirectory) {
			pipes = append(pipes, b.PipeDirectory)
		}
	}
	return pipes
}

// askDaemons asks the MPS control daemons, and returns the errors by pipe directory.
func askDaemons(pipes []string) map[string]error {
	out := map[string]error{}
	for _, pipe := range pipes {
		if err := daemonAnswers(context.Background(), pipe); err != nil {
			out[pipe] = err
		}
	}
	return out
}

// daemonVerdicts makes the parts of GPUs unhealthy whose MPS control daemon does not answer.
// Callers hold mu.
func (p *Plugin) daemonVerdicts(verdicts map[string]verdict) {
	for id, v := range verdicts {
		block, shared := p.sharedBy[id]
		if !shared || !v.healthy || p.view.forms[id].Mode != MPS {
			continue
		}
		if err := p.daemons[p.cfg.Sharing[block].PipeDirectory]; err != nil {
			p.said.warn(err.Error())
			verdicts[id] = verdict{reason: reasonMPS, degraded: v.degraded, unsettled: true}
		}
	}
}

// joinMPS adds the variables that a task needs to use its parts of these devices under MPS. The
// limit on threads applies to all of the task's GPUs. The pipe directory is read-only for the task,
// which can still talk to the daemon. Callers hold mu.
func (p *Plugin) joinMPS(res *device.ContainerReservation, chosen []gpu.Device, parts map[string]int) error {
	pipe := ""
	threads := 0
	memory := []string{}
	for i, d := range chosen {
		f := p.view.forms[d.ID]
		block, known := p.sharedBy[d.ID]
		if f.Mode != MPS || !known {
			continue
		}
		b := p.cfg.Sharing[block]
		if pipe != "" && pipe != b.PipeDirectory {
			return fmt.Errorf("GPUs %s have different MPS control daemons, but a process can use only one daemon: request parts of one GPU (count = 1)",
				strings.Join(ids(chosen), ", "))
		}
		pipe = b.PipeDirectory
		threads = max(threads, min(100, cmp.Or(b.Threads, 100/b.Replicas)*parts[d.ID]))
		if d.MemoryMiB != nil {
			memory = append(memory, fmt.Sprintf("%d=%dM", i, *d.MemoryMiB/int64(f.Replicas)*int64(parts[d.ID])))
		}
	}
	if pipe == "" {
		return nil
	}
	res.Envs[envPipe], res.Envs[envThreads] = pipe, fmt.Sprint(threads)
	if len(memory) > 0 {
		res.Envs[envMemory] = strings.Join(memory, ",")
	}
	if p.cfg.Backend == "nvml" { // emulated GPUs need no directory
		res.Mounts = append(res.Mounts, &device.Mount{TaskPath: pipe, HostPath: pipe, ReadOnly: true})
	}
	return nil
}

// Variables of a task that uses MPS, as NVIDIA documents them.
const (
	envPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	envThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	envMemory  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// mpsProgram is NVIDIA's control program, found on PATH. The program is both the daemon and its client.
const mpsProgram = "nvidia-cuda-mps-control"

// daemonWithin is the maximum time of a question to the daemon.
const daemonWithin = 5 * time.Second

// daemonAnswers returns an error unless the control daemon with this pipe directory answers.
func daemonAnswers(ctx context.Context, pipe string) error {
	ctx, cancel := context.WithTimeout(ctx, daemonWithin)
	defer cancel()
	var said limited
	cmd := exec.CommandContext(ctx, mpsProgram)
	cmd.Env = []string{envPipe + "=" + pipe}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader("get_server_list\n")
	cmd.Stdout = &said
	cmd.Stderr = &said
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", daemonWithin)
	}
	if err != nil {
		return fmt.Errorf("asking the MPS control daemon with pipe directory %s: %w %s", pipe, err, strings.TrimSpace(string(said.said)))
	}
	return nil
}

// limited keeps the first bytes that a program writes, and drops the rest.
type limited struct{ said []byte }

// mostSaid is the maximum number of bytes of a program's output in an error.
const mostSaid = 400

func (l *limited) Write(p []byte) (int, error) {
	l.said = append(l.said, p[:min(mostSaid-len(l.said), len(p))]...)
	return len(p), nil
}
