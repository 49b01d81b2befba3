// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package replay

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/process"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Placer is a running `nomad-pal agent`. Stop or Kill it.
type Placer struct {
	cmd *exec.Cmd
	log string
}

// StartPlacer runs an agent on the bed's cluster with that configuration (HCL).
func (b *Bed) StartPlacer(ctx context.Context, config string) (*Placer, error) {
	return StartPlacer(ctx, b.Bin, b.dir, b.Cluster.Env(), config)
}

// StartPlacer runs an agent with that configuration (HCL). bin is the folder of our
// binaries, dir that of its files, env says where Nomad is.
func StartPlacer(ctx context.Context, bin, dir string, env []string, config string) (*Placer, error) {
	path := filepath.Join(dir, "placer.hcl")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return nil, err
	}
	p := &Placer{log: filepath.Join(dir, "placer.log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(ctx, filepath.Join(bin, "nomad-pal"), "agent", "-config", path)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the placer: %w", err)
	}
	return p, nil
}

// Stop ends the agent as an operator would and waits for it.
func (p *Placer) Stop() { p.end(syscall.SIGTERM) }

// Kill ends the agent with SIGKILL and waits for it.
func (p *Placer) Kill() { p.end(syscall.SIGKILL) }

func (p *Placer) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Wait() // how it ended is in its log
}

// PID is the agent's process id.
func (p *Placer) PID() int { return p.cmd.Process.Pid }

// Cost is what a placer used over a run, its start included.
type Cost struct {
	CPUS  float64 `json:"cpu_s"`
	RSSMB float64 `json:"rss_mb"` // at the end
}

func (p *Placer) cost() (*Cost, error) {
	cpu, err := process.CPU(p.PID())
	if err != nil {
		return nil, err
	}
	used, err := process.Of(p.PID())
	return &Cost{CPUS: cpu.Seconds(), RSSMB: used.RSSMB}, err
}

// URL is where the agent's HTTP API listens; it waits until the log says so.
func (p *Placer) URL(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	said := regexp.MustCompile(`HTTP API: address=(\S+)`)
	url := ""
	err := cluster.Until(ctx, "the placer names its address", func(context.Context) (string, error) {
		text, err := os.ReadFile(p.log)
		if m := said.FindSubmatch(text); m != nil {
			url = "http://" + string(m[1])
			return "", nil
		}
		return "its log does not yet", err
	})
	return url, err
}

// PlacerLog is what the last placer logged.
func (b *Bed) PlacerLog() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "placer.log"))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}
