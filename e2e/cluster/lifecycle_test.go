// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// boxes is a client with n devices of the stub plugin.
func boxes(t *testing.T, n int) cluster.Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Client{Plugins: []cluster.Plugin{{Path: self, Name: stubName, Config: "count = " + strconv.Itoa(n)}}}
}

// devices is the condition that the node has n devices.
func devices(c *cluster.Cluster, node string, n int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		id, err := c.NodeID(ctx, node)
		if err != nil {
			return "", err
		}
		full, _, err := c.API().Nodes().Info(id, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		count := 0
		for _, g := range full.NodeResources.Devices {
			count += len(g.Instances)
		}
		if count != n {
			return fmt.Sprintf("%d devices", count), nil
		}
		return "", nil
	}
}

func TestPluginsArePerClientAndComeBackWhenKilled(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Clients: []cluster.Client{boxes(t, 3), boxes(t, 5), {}}})
	for i, want := range []int{3, 5, 0} { // ready implies fingerprinted, so this does not wait
		if missing, err := devices(c, c.Clients()[i].Name, want)(t.Context()); missing != "" || err != nil {
			t.Errorf("client %d: %s %v, want %d", i, missing, err, want)
		}
	}
	client := c.Clients()[0]
	before, err := client.PluginPIDs(stubName)
	if err != nil || len(before) != 1 {
		t.Fatalf("plugin processes: %v (%v), want one", before, err)
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "Nomad restarts the plugin", func(context.Context) (string, error) {
		now, err := client.PluginPIDs(stubName)
		if err != nil || len(now) != 1 || now[0] == before[0] {
			return fmt.Sprint(now), err
		}
		return "", nil
	})
}

func TestKilledClientLeavesItsTasksAndComesBack(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: time.Second, Clients: []cluster.Client{{}}})
	mustRun(t, c, sleeper("survivor", 1), 1)
	tasks := sleepers(t, c.Dir)
	client := c.Clients()[0]
	id, err := c.NodeID(t.Context(), client.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "the node is down", nodeIs(c, id, api.NodeStatusDown))
	if got := sleepers(t, c.Dir); !slices.Equal(got, tasks) {
		t.Errorf("tasks %v after the kill, want %v: a task outlives its client", got, tasks)
	}
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, err := c.NodeID(t.Context(), client.Name); again != id {
		t.Errorf("node id %s (%v) after the restart, want %s", again, err, id)
	}
}

func TestPausedClientIsDownUntilResumed(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{HeartbeatTTL: time.Second, Clients: []cluster.Client{{}}})
	client := c.Clients()[0]
	id, err := c.NodeID(t.Context(), client.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Pause(); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "the node is down", nodeIs(c, id, api.NodeStatusDown))
	if err := client.Resume(); err != nil {
		t.Fatal(err)
	}
	clustertest.Until(t, c, "the node is ready", nodeIs(c, id, api.NodeStatusReady))
}

func nodeIs(c *cluster.Cluster, id, status string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		n, _, err := c.API().Nodes().Info(id, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil || n.Status != status {
			return "another status", err
		}
		return "", nil
	}
}

func TestThreeServersOutliveTheirLeader(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{Servers: 3})
	leader, err := c.API().Status().Leader()
	if err != nil {
		t.Fatal(err)
	}
	isLeader := func(a *cluster.Agent) bool { return a.RPCAddr() == leader }
	i := slices.IndexFunc(c.Servers(), isLeader)
	if i < 0 {
		t.Fatalf("leader %s is not one of our servers", leader)
	}
	if err := c.Servers()[i].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := c.Servers()[(i+1)%3]
	clustertest.Until(t, c, "another server leads", func(context.Context) (string, error) {
		now, err := other.API().Status().Leader()
		if err != nil || now == "" || now == leader {
			return "leader " + now, err
		}
		return "", nil
	})
}

func TestACLAndTLS(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{ACL: true, TLS: true, Clients: []cluster.Client{{}}})
	mustRun(t, c, sleeper("secured", 1), 1)

	withoutToken, err := api.NewClient(&api.Config{Address: c.Servers()[0].HTTPAddr(),
		TLSConfig: &api.TLSConfig{CACert: c.TLS().CA, ClientCert: c.TLS().Cert, ClientKey: c.TLS().Key}})
	if err != nil {
		t.Fatal(err)
	}
	if jobs, _, err := withoutToken.Jobs().List(nil); err == nil && len(jobs) > 0 {
		t.Errorf("a request without a token returns %d jobs", len(jobs))
	}
	if _, _, err := withoutToken.Nodes().List(nil); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("nodes without a token: %v, want status 403", err)
	}
	plain, err := api.NewClient(&api.Config{Address: c.Servers()[0].HTTPAddr(), SecretID: c.Token,
		TLSConfig: &api.TLSConfig{CACert: c.TLS().CA}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Status().Leader(); err == nil {
		t.Error("a client without certificate is served")
	}
	cli := exec.CommandContext(t.Context(), nomad(t), "job", "status", "secured")
	cli.Env = c.Env()
	if out, err := cli.CombinedOutput(); err != nil || !strings.Contains(string(out), "running") {
		t.Errorf("nomad job status with Env(): %v\n%s", err, out)
	}
}

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

func TestARestartWaitsForItsPorts(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	server := c.Servers()[0]
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(server.HTTPAddr(), "://")
	intruder, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- server.Start(t.Context()) }()
	clustertest.Until(t, c, "the server finds its port taken", func(context.Context) (string, error) {
		if !strings.Contains(server.LogTail(20), "address already in use") {
			return "not in the log", nil
		}
		return "", nil
	})
	if err := intruder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Error(err)
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
	if err := patience.Until(t.Context(), patience.Limits{}, "the guard has cleaned up", func(context.Context) (string, error) {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return dir + " exists", nil
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	assertNothingLeft(t, dir)
}
