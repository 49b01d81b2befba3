// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// buildSimnodes builds bench/simnodes, a module of its own. The tag is that of e2e/nomad/build.sh, so that both share
// what Go has compiled.
func buildSimnodes(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and plays a Nomad cluster: not in -short mode")
	}
	binary := filepath.Join(t.TempDir(), "simnodes")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "hashicorpmetrics", "-o", binary, ".")
	build.Dir = filepath.Join("..", "bench", "simnodes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build simnodes: %v\n%s", err, out)
	}
	return binary
}

// simulated is a running simnodes.
type simulated struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when its output has ended
	last progressLine  // the last line, once done is closed
}

type progressLine struct {
	Phase      string
	Registered int
	Running    int
	Completed  int
	Stopped    int
	Errors     int
	LastError  string `json:"last_error"`
}

// startSimnodes returns once the nodes are registered.
func startSimnodes(t *testing.T, binary string, c *cluster.Cluster, nodes int) *simulated {
	t.Helper()
	s := &simulated{done: make(chan struct{})}
	s.cmd = exec.Command(binary, "-server", c.Servers()[0].RPCAddr(), "-nodes", fmt.Sprint(nodes))
	s.cmd.Env = append(os.Environ(), c.Env()...)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	playing := make(chan struct{})
	go s.follow(out, playing)
	t.Cleanup(func() { s.kill() })
	select {
	case <-playing:
	case <-s.done:
		t.Fatalf("simnodes ended: %+v", s.last)
	case <-time.After(time.Minute):
		t.Fatal("simnodes does not play within a minute")
	}
	return s
}

func (s *simulated) follow(out io.Reader, playing chan<- struct{}) {
	defer close(s.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		before := s.last.Phase
		if err := json.Unmarshal(lines.Bytes(), &s.last); err != nil {
			s.last.Phase = err.Error()
		}
		if s.last.Phase == "playing" && before != "playing" {
			close(playing)
		}
	}
}

// kill ends simnodes as a crash does; stop as Ctrl-C does, and returns its last word.
func (s *simulated) kill() { s.end(syscall.SIGKILL) }

func (s *simulated) stop() progressLine {
	s.end(syscall.SIGINT)
	return s.last
}

func (s *simulated) end(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig)
	<-s.done
	_ = s.cmd.Wait()
}

// simJob asks for GPUs on simulated nodes, for so many seconds or, when "", for ever.
func simJob(t *testing.T, id string, count int, seconds string) *api.Job {
	t.Helper()
	meta := ""
	if seconds != "" {
		meta = fmt.Sprintf("meta {\n sim_seconds = %q\n }", seconds)
	}
	job, err := jobspec2.Parse(id, strings.NewReader(fmt.Sprintf(`
job %q {
  type = "batch"
  %s
  group "g" {
    count = %d
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
      }
      resources {
        device "nvidia/gpu" {
          count = 4
        }
      }
    }
  }
}`, id, meta, count)))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// statuses is the condition that so many allocations of the job have the client status.
func statuses(c *cluster.Cluster, job, status string, want int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		allocs, _, err := c.API().Jobs().Allocations(job, false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		n := 0
		for _, a := range allocs {
			if a.ClientStatus == status {
				n++
			}
		}
		if n != want {
			return fmt.Sprintf("%d of %d allocations %s", n, want, status), nil
		}
		return "", nil
	}
}

// TestSimulatedNodes plays 60 nodes × 8 GPUs on a real server: allocations run and complete in the time they ask for,
// run on while simnodes is away, and stop when told.
func TestSimulatedNodes(t *testing.T) {
	t.Parallel()
	binary := buildSimnodes(t)
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: time.Hour})
	sim := startSimnodes(t, binary, c, 60)
	register := func(job *api.Job) {
		t.Helper()
		if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
	}
	register(simJob(t, "short", 90, "0.2"))
	register(simJob(t, "endless", 30, ""))
	clustertest.Until(t, time.Minute, "short is complete", statuses(c, "short", api.AllocClientStatusComplete, 90))
	clustertest.Until(t, time.Minute, "endless runs", statuses(c, "endless", api.AllocClientStatusRunning, 30))

	// All 480 GPUs: 30 allocations of endless hold 120, so 90 of this job run and the others wait.
	register(simJob(t, "rest", 100, ""))
	clustertest.Until(t, time.Minute, "the rest fills the cluster", statuses(c, "rest", api.AllocClientStatusRunning, 90))

	sim.kill()
	again := startSimnodes(t, binary, c, 60)
	if _, _, err := c.API().Jobs().Deregister("rest", false, nil); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, time.Minute, "the rest stops", statuses(c, "rest", api.AllocClientStatusComplete, 90))
	clustertest.Until(t, time.Minute, "endless runs still", statuses(c, "endless", api.AllocClientStatusRunning, 30))
	if got, want := again.stop(), (progressLine{Phase: "ended", Registered: 60, Stopped: 90}); got != want {
		t.Errorf("simnodes ended with %+v, want %+v", got, want)
	}
}
