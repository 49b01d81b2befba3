// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

func nomad(t *testing.T) string {
	t.Helper()
	path, err := cluster.FindNomad()
	if err != nil {
		t.Skip(err)
	}
	return path
}

func TestAnAgentThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	nomad(t)
	dir := t.TempDir()
	_, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, Clients: []cluster.Client{{HCL: `no_such_key = 1`}}})
	if err == nil || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("error %v does not name the wrong key", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}

// ownForever is the other program in this binary: it starts a cluster with a running task, prints
// its directory and waits to be killed.
func ownForever() int {
	ctx := context.Background()
	o := cluster.Options{Clients: []cluster.Client{{}}, Apart: true, ServerDisk: 64 << 20}
	c, err := cluster.Start(ctx, o)
	if errors.Is(err, cluster.ErrNoNamespaces) {
		o.Apart, o.ServerDisk = false, 0
		c, err = cluster.Start(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	job := bare("orphan", 1)
	if _, _, err := c.API().Jobs().Register(job, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cluster.Until(ctx, "the task runs", c.Allocations("orphan", api.AllocClientStatusRunning, 1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(c.Dir)
	select {}
}

func TestNothingIsLeftWhenTheOwnerIsKilled(t *testing.T) {
	t.Parallel()
	nomad(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || len(sleepers(t, dir)) != 1 {
		t.Fatalf("the owner prints %q (%v), tasks %v; want a directory and one task", line, err, sleepers(t, dir))
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	if err := patience.Until(t.Context(), patience.Long, "the guard has cleaned up", func(context.Context) (string, error) {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return dir + " exists", nil
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, dir)
}
