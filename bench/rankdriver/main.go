// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command rank-driver is a Nomad task driver for the replay. It only runs a program as a child
// process. Nomad's raw_exec starts another Nomad process for each task, which takes about 0.3 s of
// CPU. On a GPU cluster this cost does not matter, but a replay starts the tasks of many hours of a
// trace within minutes, on one machine.
//
// Tasks do not survive their client, because the driver does not recover tasks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	cstructs "github.com/hashicorp/nomad/client/structs"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/fsisolation"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	pstructs "github.com/hashicorp/nomad/plugins/shared/structs"
)

const name = "rank"

func main() {
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, JSONFormat: true, Output: os.Stderr})
	drivers.Serve(&driver{tasks: map[string]*task{}}, log)
}

// driver runs tasks.
type driver struct {
	drivers.DriverSignalTaskNotSupported
	drivers.DriverExecTaskNotSupported

	mu    sync.Mutex // guards tasks
	tasks map[string]*task
}

// task is a program that runs or has ended.
type task struct {
	config  *drivers.TaskConfig
	process *os.Process
	started time.Time
	ended   chan struct{} // closed when the program has ended, after the fields below are set
	result  drivers.ExitResult
	at      time.Time
}

// program is a task's config block.
type program struct {
	Command string   `codec:"command"`
	Args    []string `codec:"args"`
}

// PluginInfo identifies the plugin.
func (*driver) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{Type: base.PluginTypeDriver, PluginApiVersions: []string{drivers.ApiVersion010}, PluginVersion: "0.1.0", Name: name}, nil
}

// ConfigSchema returns an empty schema: the driver has no configuration.
func (*driver) ConfigSchema() (*hclspec.Spec, error) {
	return hclspec.NewObject(map[string]*hclspec.Spec{}), nil
}

// SetConfig does nothing.
func (*driver) SetConfig(*base.Config) error { return nil }

// TaskConfigSchema returns a part of raw_exec's schema.
func (*driver) TaskConfigSchema() (*hclspec.Spec, error) {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"command": hclspec.NewAttr("command", "string", true),
		"args":    hclspec.NewAttr("args", "list(string)", false),
	}), nil
}

// Capabilities reports that the driver has no optional capabilities.
func (*driver) Capabilities() (*drivers.Capabilities, error) {
	return &drivers.Capabilities{FSIsolation: fsisolation.None, MountConfigs: drivers.MountConfigSupportNone, DisableLogCollection: true}, nil
}

// Fingerprint reports once that the driver is healthy.
func (*driver) Fingerprint(ctx context.Context) (<-chan *drivers.Fingerprint, error) {
	c := make(chan *drivers.Fingerprint, 1)
	c <- &drivers.Fingerprint{
		Attributes: map[string]*pstructs.Attribute{"driver." + name: pstructs.NewBoolAttribute(true)},
		Health:     drivers.HealthStateHealthy, HealthDescription: drivers.DriverHealthy,
	}
	context.AfterFunc(ctx, func() { close(c) })
	return c, nil
}

// RecoverTask recovers no task of an earlier process.
func (*driver) RecoverTask(*drivers.TaskHandle) error { return drivers.ErrTaskNotFound }

// StartTask starts the program in the task's directory.
func (d *driver) StartTask(cfg *drivers.TaskConfig) (*drivers.TaskHandle, *drivers.DriverNetwork, error) {
	var p program
	if err := cfg.DecodeDriverConfig(&p); err != nil {
		return nil, nil, fmt.Errorf("reading the config of task %q: %w", cfg.Name, err)
	}
	cmd := exec.Command(p.Command, p.Args...)
	cmd.Env, cmd.Dir = cfg.EnvList(), filepath.Join(cfg.AllocDir, cfg.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting %q for task %q: %w", p.Command, cfg.Name, err)
	}
	t := &task{config: cfg, process: cmd.Process, started: time.Now(), ended: make(chan struct{})}
	d.mu.Lock()
	d.tasks[cfg.ID] = t
	d.mu.Unlock()
	go t.wait(cmd) // returns when the program ends; DestroyTask kills it at the latest
	h := drivers.NewTaskHandle(1)
	h.Config, h.State = cfg, drivers.TaskStateRunning
	if err := h.SetDriverState(struct{}{}); err != nil {
		t.kill(syscall.SIGKILL)
		return nil, nil, fmt.Errorf("storing the state of task %q: %w", cfg.Name, err)
	}
	return h, nil, nil
}

func (t *task) wait(cmd *exec.Cmd) {
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status := exit.Sys().(syscall.WaitStatus)
		t.result.ExitCode = status.ExitStatus()
		if status.Signaled() {
			t.result.ExitCode, t.result.Signal = 128+int(status.Signal()), int(status.Signal())
		}
	case err != nil:
		t.result.Err = err
	}
	t.at = time.Now()
	close(t.ended)
}

// kill signals the program and all processes it has started.
func (t *task) kill(s syscall.Signal) { _ = syscall.Kill(-t.process.Pid, s) }

func (d *driver) task(id string) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[id]
	if t == nil {
		return nil, drivers.ErrTaskNotFound
	}
	return t, nil
}

// WaitTask delivers the result when the program has ended.
func (d *driver) WaitTask(ctx context.Context, id string) (<-chan *drivers.ExitResult, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	c := make(chan *drivers.ExitResult, 1)
	go func() {
		defer close(c)
		select {
		case <-t.ended:
			c <- t.result.Copy()
		case <-ctx.Done():
		}
	}()
	return c, nil
}

// StopTask asks the program to end, and kills it after the timeout.
func (d *driver) StopTask(id string, timeout time.Duration, _ string) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	t.kill(syscall.SIGTERM)
	over := time.NewTimer(timeout)
	defer over.Stop()
	select {
	case <-t.ended:
	case <-over.C:
		t.kill(syscall.SIGKILL)
		<-t.ended
	}
	return nil
}

// DestroyTask forgets a task.
func (d *driver) DestroyTask(id string, force bool) error {
	t, err := d.task(id)
	if err != nil {
		return err
	}
	select {
	case <-t.ended:
	default:
		if !force {
			return fmt.Errorf("destroying task %q: it still runs", id)
		}
		t.kill(syscall.SIGKILL)
		<-t.ended
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tasks, id)
	return nil
}

// InspectTask reports the state of a task.
func (d *driver) InspectTask(id string) (*drivers.TaskStatus, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	s := &drivers.TaskStatus{ID: id, Name: t.config.Name, State: drivers.TaskStateRunning, StartedAt: t.started}
	select {
	case <-t.ended:
		s.State, s.CompletedAt, s.ExitResult = drivers.TaskStateExited, t.at, t.result.Copy()
	default:
	}
	return s, nil
}

// TaskStats returns no statistics.
func (*driver) TaskStats(ctx context.Context, _ string, _ time.Duration) (<-chan *cstructs.TaskResourceUsage, error) {
	c := make(chan *cstructs.TaskResourceUsage)
	context.AfterFunc(ctx, func() { close(c) })
	return c, nil
}

// TaskEvents returns no events.
func (*driver) TaskEvents(ctx context.Context) (<-chan *drivers.TaskEvent, error) {
	c := make(chan *drivers.TaskEvent)
	context.AfterFunc(ctx, func() { close(c) })
	return c, nil
}
