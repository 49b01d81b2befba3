// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/mps/mpstest"
	"github.com/nomad-pal/nomad-pal/internal/guard"
	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
)

func TestMain(m *testing.M) {
	answersWithin = time.Minute
	os.Exit(guard.Main(m))
}

// room is the directory of one test's daemons.
type room struct {
	t       *testing.T
	dir     string
	control string
	log     *testlog.Buffer
	mu      sync.Mutex
	stored  []Daemon
}

func newRoom(t *testing.T) *room {
	t.Helper()
	t.Parallel()
	r := &room{t: t, dir: t.TempDir(), log: &testlog.Buffer{}}
	var err error
	if r.control, err = mpstest.Install(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // however the test ended
		pids, _ := filepath.Glob(filepath.Join(r.dir, "*", "pipe", pidFile))
		for _, path := range pids {
			if pid := pidOf(path); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

func pidOf(path string) int {
	text, _ := os.ReadFile(path)
	pid := 0
	_, _ = fmt.Sscan(string(text), &pid)
	return pid
}

func (r *room) daemon(gpu string) Daemon {
	dir := filepath.Join(r.dir, gpu)
	return Daemon{GPU: gpu, Pipe: filepath.Join(dir, "pipe"), Log: filepath.Join(dir, "log"), Control: r.control, Own: true, Threads: 25, MemoryMiB: 1000}
}

// newKeeper returns a keeper that checks often. left are the daemons that an earlier keeper
// stored.
func (r *room) newKeeper(left ...Daemon) *Keeper {
	k := NewKeeper(hclog.New(&hclog.LoggerOptions{Output: r.log}), left, func(ds []Daemon) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stored = ds
		return nil
	})
	k.tick, k.look = 20*time.Millisecond, 20*time.Millisecond
	return k
}

// run runs a keeper; end ends it as Nomad ends the plugin.
func (r *room) run(k *Keeper) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(end)
	return end
}

func (r *room) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := patience.Over(r.t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.t.Fatalf("waited for %s", what)
		case <-tick.C:
		}
	}
}

func (r *room) write(d Daemon, name, text string) {
	r.t.Helper()
	if err := os.MkdirAll(d.Pipe, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Pipe, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) read(d Daemon, name string) string {
	text, _ := os.ReadFile(filepath.Join(d.Pipe, name))
	return strings.TrimSpace(string(text))
}

// A daemon is started with its limits, and sees only its GPU. It ends with the plugin if no task
// was given a part. Otherwise the next plugin adopts it, and ends it once it is no longer wanted.
func TestLifeOfADaemon(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": d}, nil)
	if got := k.Trouble("GPU-a"); got != NoDaemon {
		t.Errorf("before the daemon runs: %q", got)
	}
	end := r.run(k)
	r.until("the daemon", func() bool { return k.Trouble("GPU-a") == "" })
	if !d.runs() || r.read(d, "threads") != "25" || r.read(d, "memory") != "0 1000M" {
		t.Errorf("runs: %v, threads %q, memory %q", d.runs(), r.read(d, "threads"), r.read(d, "memory"))
	}
	if log, err := os.ReadFile(filepath.Join(d.Log, "control.log")); err != nil || string(log) != "GPU-a\n" {
		t.Errorf("it sees the GPUs %q: %v", log, err)
	}
	end()
	if d.runs() {
		t.Error("an unused daemon is left by the plugin")
	}

	k = r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": d}, nil)
	end = r.run(k)
	r.until("the next daemon", func() bool { return k.Trouble("GPU-a") == "" })
	if err := d.Use(); err != nil {
		t.Fatal(err)
	}
	pid := r.read(d, pidFile)
	end()
	more := d
	more.Threads = 50
	left := slices.Clone(r.stored)
	k = r.newKeeper(left...) // as after SIGKILL: the new keeper knows only what was stored
	k.Want(map[string]Daemon{"GPU-a": more}, nil)
	end = r.run(k)
	r.until("the new limits", func() bool { return r.read(d, "threads") == "50" })
	if got := r.read(d, pidFile); got != pid {
		t.Errorf("the daemon was started again: %s, then %s", pid, got)
	}
	k.Want(map[string]Daemon{}, map[string]bool{"GPU-a": true}) // tasks still use the GPU
	end()
	if !d.runs() {
		t.Error("the daemon of a GPU that tasks hold was ended")
	}
	moved := d
	moved.Pipe = filepath.Join(r.dir, "elsewhere", "pipe")
	k = r.newKeeper(r.stored...)
	k.Want(map[string]Daemon{"GPU-a": moved}, nil) // the operator configures another folder
	end = r.run(k)
	r.until("the daemon in the other folder, and the end of the first", func() bool { return moved.runs() && !d.runs() })
	if err := moved.Use(); err != nil {
		t.Fatal(err)
	}
	end()
	d = moved
	k = r.newKeeper(r.stored...)
	k.step(t.Context()) // before the first scan
	if !d.runs() {
		t.Error("the daemon was ended before it was known whether it is wanted")
	}
	k = r.newKeeper(r.stored...)
	k.Want(map[string]Daemon{}, nil)
	r.run(k)
	r.until("the end of the daemon", func() bool { return !d.runs() })
	r.until("that it is forgotten", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.stored) == 0 })
}

// A daemon that is killed is started again. One that keeps ending is started only a few times.
func TestDaemonIsStartedAgain(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": d}, nil)
	end := r.run(k)
	r.until("the daemon", func() bool { return k.Trouble("GPU-a") == "" })
	first := pidOf(filepath.Join(d.Pipe, pidFile))
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("another daemon that was told its limits", func() bool {
		return pidOf(filepath.Join(d.Pipe, pidFile)) != first && d.runs() && r.read(d, "threads") == "25" && k.Trouble("GPU-a") == ""
	})
	r.write(d, "broken", "")
	_ = syscall.Kill(pidOf(filepath.Join(d.Pipe, pidFile)), syscall.SIGKILL)
	r.until("the limit", func() bool { return strings.Contains(r.log.String(), "has ended 5 times within 10m0s") })
	if got := k.Trouble("GPU-a"); got != NoDaemon {
		t.Errorf("trouble %q", got)
	}
	end()
	log, _ := os.ReadFile(filepath.Join(d.Log, "control.log"))
	if n := strings.Count(string(log), "GPU-a"); n != mostStarts {
		t.Errorf("started %d times, want %d", n, mostStarts)
	}
	if n := strings.Count(r.log.String(), "has ended 5 times"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

func TestNoProgram(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	d.Control = "/nonexistent/nvidia-cuda-mps-control"
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": d}, nil)
	r.run(k)
	r.until("the message about the program", func() bool {
		return strings.Contains(r.log.String(), "/nonexistent/nvidia-cuda-mps-control") && strings.Contains(r.log.String(), "no such file")
	})
	if got := k.Trouble("GPU-a"); got != NoDaemon {
		t.Errorf("trouble %q", got)
	}
}

// A server in a fault, or one that died before its clients, is trouble until the clients
// have ended.
func TestServers(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": d}, nil)
	r.run(k)
	r.until("the daemon", func() bool { return k.Trouble("GPU-a") == "" })
	client := exec.Command("sleep", "600")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = client.Process.Kill(); _ = client.Wait() })
	t.Cleanup(kill)
	r.write(d, "servers", fmt.Sprintf("17 FAULT %d\n", client.Process.Pid))
	r.until("the fault", func() bool { return k.Trouble("GPU-a") == NoServer })
	r.write(d, "servers", fmt.Sprintf("17 ACTIVE %d\n", client.Process.Pid))
	r.until("its end", func() bool { return k.Trouble("GPU-a") == "" })
	r.write(d, "servers", "")
	r.until("the death of the server", func() bool { return k.Trouble("GPU-a") == NoServer })
	if !strings.Contains(r.log.String(), "MPS server 17 has a fault") || !strings.Contains(r.log.String(), "has died") {
		t.Error("the log does not say what happened")
	}
	kill()
	r.until("the end of the client", func() bool { return k.Trouble("GPU-a") == "" })
}

// The plugin watches an operator's own daemon, but neither starts nor ends it.
func TestOperatorsDaemon(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	if err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := Daemon{Pipe: d.Pipe, Control: d.Control}
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": theirs, "GPU-b": theirs}, nil)
	end := r.run(k)
	r.until("that it is seen", func() bool { return k.Trouble("GPU-a") == "" })
	k.Want(map[string]Daemon{}, nil)
	end()
	if !d.runs() {
		t.Fatal("the operator's daemon was ended")
	}
	if err := d.quit(t.Context()); err != nil {
		t.Fatal(err)
	}
	k = r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": theirs, "GPU-b": theirs}, nil)
	r.run(k)
	r.until("the message about it", func() bool { return strings.Contains(r.log.String(), "start it with nvidia-cuda-mps-control -d") })
	if d.runs() || k.Trouble("GPU-a") != NoDaemon {
		t.Errorf("runs: %v, trouble %q", d.runs(), k.Trouble("GPU-a"))
	}
	if err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("that it was started, as advised", func() bool { return k.Trouble("GPU-a") == "" })
	if err := d.quit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A pause waits for a daemon that ends slowly, longer than a plugin may take to end.
func TestPauseWaits(t *testing.T) {
	r := newRoom(t)
	slow := r.daemon("GPU-a")
	program := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nsleep 0.6\nexec %s \"$@\"\n", slow.Control), 0o755); err != nil {
		t.Fatal(err)
	}
	slow.Control = program
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": slow}, nil)
	r.run(k)
	r.until("the daemon", func() bool { return k.Trouble("GPU-a") == "" })
	k.Pause(t.Context())
	if slow.runs() {
		t.Error("it runs on")
	}
}

// While the driver is released, no daemon holds a GPU that no task uses.
func TestPause(t *testing.T) {
	r := newRoom(t)
	idle, busy := r.daemon("GPU-a"), r.daemon("GPU-b")
	k := r.newKeeper()
	k.Want(map[string]Daemon{"GPU-a": idle, "GPU-b": busy}, nil)
	r.run(k)
	r.until("the daemons", func() bool { return k.Trouble("GPU-a") == "" && k.Trouble("GPU-b") == "" })
	r.write(busy, "servers", "17 ACTIVE 1\n")
	k.Pause(t.Context())
	if idle.runs() || !busy.runs() {
		t.Errorf("idle runs: %v, busy runs: %v", idle.runs(), busy.runs())
	}
	if !strings.Contains(r.log.String(), "keeps running, because tasks use it") {
		t.Error("the log does not mention the busy one")
	}
	k.Resume()
	r.until("the daemon again", func() bool { return idle.runs() && k.Trouble("GPU-a") == "" })
	r.write(busy, "servers", "")
}

func TestStoringFails(t *testing.T) {
	r := newRoom(t)
	k := r.newKeeper()
	k.save = func([]Daemon) error { return errors.New("disk full") }
	k.Want(map[string]Daemon{"GPU-a": r.daemon("GPU-a")}, nil)
	r.run(k)
	r.until("the daemon all the same", func() bool { return k.Trouble("GPU-a") == "" })
	if !strings.Contains(r.log.String(), "disk full") {
		t.Error("nothing is said")
	}
}

// If a server ends while the daemon is queried about it, the clients of the previous answer
// are kept.
func TestServerGoesMeanwhile(t *testing.T) {
	r := newRoom(t)
	d := r.daemon("GPU-a")
	d.Control = filepath.Join(t.TempDir(), "control")
	const program = `#!/bin/sh
read -r command _
case $command in
get_server_list) [ -f "$CUDA_MPS_PIPE_DIRECTORY/asked" ] || echo 17; touch "$CUDA_MPS_PIPE_DIRECTORY/asked" ;;
get_server_status) echo ACTIVE ;;
esac
`
	if err := os.WriteFile(d.Control, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(d, "unused", "")
	if clients, _, err := d.servers(t.Context()); err != errMeanwhile {
		t.Errorf("clients %v, %v; want that the servers change", clients, err)
	}
	if clients, _, err := d.servers(t.Context()); len(clients) > 0 || err != nil {
		t.Errorf("then clients %v, %v; want none", clients, err)
	}
}
