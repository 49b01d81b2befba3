// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
)

// holdEnv makes the program hold a container, instead of running tests, until it is
// killed.
const holdEnv = "NOMAD_PAL_DOCKER_HOLD"

func holdContainer(ctx context.Context) error {
	e, err := startEngine(ctx)
	if err != nil {
		return err
	}
	image, err := buildImage()
	if err != nil {
		return err
	}
	if err := e.load(ctx, image, pytorch); err != nil {
		return err
	}
	var made container
	err = e.call(ctx, http.MethodPost, "/containers/create", map[string]any{
		"Image": pytorch, "Cmd": []string{"hold"}, "Env": []string{"NOMAD_ALLOC_DIR=/tmp"},
	}, &made)
	if err != nil {
		return err
	}
	err = e.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil)
	if err != nil {
		return err
	}
	fmt.Println("held", os.Getenv(groupEnv))
	<-ctx.Done()
	return ctx.Err()
}

// TestNothingIsLeft: soon after the test is killed, engine, containers and control
// groups are gone.
func TestNothingIsLeft(t *testing.T) {
	need(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"=", holdEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // in case the test fails before it kills the process
	var group string
	lines := bufio.NewScanner(out)
	for group == "" && lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "held "); ok {
			group = name
		}
	}
	var held map[string]int
	clustertest.Until(t, nil, "engine and container run", func(context.Context) (string, error) {
		held = descendants(t, cmd.Process.Pid)
		for _, name := range []string{"dockerd", "containerd", "containerd-shim", "hold"} {
			if held[name] == 0 {
				return fmt.Sprintf("no %s among %v", name, held), nil
			}
		}
		return "", nil
	})
	if group == "" || len(groups(t, group)) == 0 {
		t.Errorf("no control groups %q", group)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, so its error is expected
	clustertest.Until(t, nil, "engine and container are gone", func(context.Context) (string, error) {
		for name, pid := range held {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err == nil && strings.TrimSpace(string(comm)) == name {
				return fmt.Sprintf("%s runs as process %d", name, pid), nil
			}
		}
		return strings.Join(groups(t, group), ", "), nil
	})
}

// descendants are the processes below one, by name, without the guard: it ends last.
func descendants(t *testing.T, root int) map[string]int {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	parents, names := map[int]int{}, map[int]string{}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			parents[p.PID], names[p.PID] = stat.PPID, stat.Comm
		}
	}
	out := map[string]int{}
	for pid, name := range names {
		for at := pid; at > 1; at = parents[at] {
			if at == root && pid != root {
				out[name] = pid
			}
		}
	}
	return out
}

// groups are the existing control groups of a name.
func groups(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		dirs, err := filepath.Glob(pattern + name)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}
