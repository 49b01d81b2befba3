// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Agent is one Nomad agent, a server or a client, which can be stopped and started again. Its
// ports, node id and data outlive its process.
type Agent struct {
	// Name is the agent's name and, for a client, also the node's.
	Name string
	// Dir holds config/, data/, plugins/ and agent.log.
	Dir string

	cluster *Cluster
	client  *Client // nil for a server
	ip      string  // the agent's IP address
	ports   ports
	api     *api.Client

	mu  sync.Mutex
	run *running // nil before the first launch
}

// HTTPAddr returns the agent's API address, in the form of NOMAD_ADDR.
func (a *Agent) HTTPAddr() string {
	scheme := "http"
	if a.cluster.options.TLS {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s:%d", scheme, a.ip, a.ports.http)
}

// RPCAddr returns a server's address for Nomad's own RPC, host:port.
func (a *Agent) RPCAddr() string { return fmt.Sprintf("%s:%d", a.ip, a.ports.rpc) }

// API returns a client for this agent's HTTP API, with the cluster's token and certificate.
func (a *Agent) API() *api.Client { return a.api }

// LogPath returns the path of the agent's log, to which a restarted agent appends.
func (a *Agent) LogPath() string { return filepath.Join(a.Dir, "agent.log") }

// PID returns the agent's process id, 0 if the agent does not run.
func (a *Agent) PID() int { return a.current().pid() }

func (a *Agent) current() *running {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run
}

// Stop ends the agent with SIGTERM, as an operator does, and waits for its end. As Nomad promises,
// a client's tasks keep running.
func (a *Agent) Stop(ctx context.Context) error { return a.current().end(ctx, syscall.SIGTERM) }

// Kill ends the agent with SIGKILL and waits for its end. The agent's plugins and tasks keep
// running.
func (a *Agent) Kill(ctx context.Context) error { return a.current().end(ctx, syscall.SIGKILL) }

// Pause stops the agent with SIGSTOP. The agent then keeps its connections open but does not
// answer, like a machine that hangs.
func (a *Agent) Pause() error { return a.current().signal(syscall.SIGSTOP) }

// Resume continues a paused agent.
func (a *Agent) Resume() error { return a.current().signal(syscall.SIGCONT) }

// Start starts an agent that was stopped or killed, with the same ports and data, and waits until
// the agent is ready. A server is ready when it answers, a client when its node is ready.
func (a *Agent) Start(ctx context.Context) error {
	if a.PID() != 0 {
		return fmt.Errorf("starting %s: it already runs", a.Name)
	}
	if err := a.launch(ctx, false); err != nil {
		return err
	}
	return a.ready(ctx)
}

// launch starts a process and waits until its API answers. If another program has taken one of the
// ports, launch tries again. A fresh agent then gets other ports, but a restarted agent keeps its
// ports, because other agents know them.
func (a *Agent) launch(ctx context.Context, fresh bool) error {
	for try := 0; ; try++ {
		if fresh {
			if err := a.renumber(); err != nil {
				return err
			}
		}
		from := a.logSize()
		if err := a.spawn(); err != nil {
			return err
		}
		err := Until(ctx, a.Name+" answers", a.answers)
		if err == nil {
			return nil
		}
		log := readFrom(a.LogPath(), from)
		if try < 10 && ctx.Err() == nil && portTaken(log) {
			continue
		}
		return fmt.Errorf("starting %s: %w; the end of its log:\n%s", a.Name, err, tail(log, 15))
	}
}

// renumber gives the agent new ports and writes a configuration with these ports.
func (a *Agent) renumber() error {
	if err := a.ports.close(); err != nil {
		return err
	}
	var err error
	if a.ports, err = freePorts(); err != nil {
		return err
	}
	if a.api, err = a.cluster.newAPI(a.HTTPAddr(), a.Name); err != nil {
		return err
	}
	return a.configure(a.cluster)
}

func (a *Agent) spawn() error {
	cmd := exec.Command(a.cluster.options.Nomad, "agent", "-config", filepath.Join(a.Dir, "config"))
	cmd.Dir, cmd.Env, cmd.SysProcAttr = a.Dir, a.cluster.environment(), &syscall.SysProcAttr{}
	if a.cluster.options.OwnMounts && os.Geteuid() == 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	r, err := a.cluster.spawn(a.Name, a.Name, cmd, a.LogPath())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.run = r
	}
	return err
}

// answers is a condition for [Until]: the agent's HTTP API answers. The condition fails if the
// process has ended.
func (a *Agent) answers(ctx context.Context) (string, error) {
	if !a.current().alive() {
		return "", Fatal(fmt.Errorf("the process ended"))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// Any status counts as an answer, for example 403 without a token. Unlike agent/health, this
	// request does not wait for a leader.
	_, err := a.api.Raw().Query("/v1/agent/self", &struct{}{}, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil && !strings.Contains(err.Error(), "Unexpected response code") {
		return err.Error(), nil
	}
	return "", ctx.Err()
}

func (a *Agent) logSize() int64 {
	st, err := os.Stat(a.LogPath())
	if err != nil {
		return 0
	}
	return st.Size()
}

// LogTail returns the last n lines of the agent's log.
func (a *Agent) LogTail(n int) string { return tail(readFrom(a.LogPath(), 0), n) }

// mountDisk mounts a separate disk for the agent's data. The guard unmounts the disk.
func (a *Agent) mountDisk(bytes int64) error {
	if err := os.Mkdir(a.DataDir(), 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", a.DataDir(), "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("mounting a disk of %d bytes for %s: %w", bytes, a.Name, err)
	}
	return nil
}

// DataDir returns the agent's data directory.
func (a *Agent) DataDir() string { return filepath.Join(a.Dir, "data") }
