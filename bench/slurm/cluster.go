// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package slurm runs Slurm clusters on this machine, for comparison: munged, slurmctld and a slurmd
// per node, with emulated GPUs. The clusters need Debian's packages (see [Missing]). A cluster ends
// with the process that started it, and shares nothing with a Slurm cluster to which the machine
// itself belongs.
package slurm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// Options describes a cluster.
type Options struct {
	Nodes    []string // names of the nodes
	GPUsEach int
	// Clock is the factor by which the controller's clock is faster than the machine's; 0 means 1.
	// Slurm's limits are whole minutes, and its backfill runs every half minute. So if hours of a
	// trace pass in seconds, Slurm's clock must run at the same speed. All other processes use the
	// machine's clock.
	Clock    float64
	Progress func(string)
}

// Cluster is a running Slurm cluster. Close it after use.
type Cluster struct {
	Dir    string
	layout layout
	guard  *cluster.Guard
	ports  io.Closer
	ended  chan error // errors of daemons that ended
}

// programs are the programs that a cluster needs, with their Debian packages.
var programs = [][2]string{{"munged", "munge"}, {"slurmctld", "slurm-wlm"}, {"slurmd", "slurm-wlm"}, {"sbatch", "slurm-wlm"}, {"srun", "slurm-wlm"}, {"squeue", "slurm-wlm"}}

// Missing reports which packages for a cluster are missing on this machine, and how to install
// them; "" if none is missing. clock reports whether the controller has a faster clock, which needs
// libfaketime.
func Missing(clock bool) string {
	var packages []string
	for _, p := range programs {
		if _, err := program(p[0]); err != nil {
			packages = append(packages, p[1])
		}
	}
	if clock && fakeTime() == "" {
		packages = append(packages, "libfaketime")
	}
	if len(packages) == 0 {
		return ""
	}
	slices.Sort(packages)
	return "no Slurm here: apt-get install --no-install-recommends " + strings.Join(slices.Compact(packages), " ")
}

// program returns the path of a program, also in /usr/sbin, which is not in the PATH of ordinary
// users.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", name))
}

// fakeTime returns the path of libfaketime for programs with threads; "" if it is not installed.
func fakeTime() string {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// Start starts a cluster and returns when all nodes are idle. If Start fails, it ends all processes
// and removes all files.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if lacks := Missing(o.Clock > 1); lacks != "" {
		return nil, errors.New("starting Slurm: " + lacks)
	}
	dir, err := os.MkdirTemp("", "pal-slurm-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the cluster's directory: %w", err)
	}
	c := &Cluster{Dir: dir, ended: make(chan error, len(o.Nodes)+2)}
	if c.guard, err = cluster.NewGuard(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("starting Slurm: %w%s", err, c.logTail()), c.Close())
	}
	return c, nil
}

// Close ends all processes of the cluster, including those of jobs, and removes its directory.
func (c *Cluster) Close() error {
	err := c.guard.Close()
	if c.ports != nil {
		err = errors.Join(err, c.ports.Close())
	}
	return err
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	c.layout = layout{dir: c.Dir, host: host, user: me.Username, nodes: o.Nodes, gpusEach: o.GPUsEach, clock: o.Clock}
	if c.layout.ports, c.ports, err = cluster.FreePorts(1 + len(o.Nodes)); err != nil {
		return err
	}
	if err := c.write(); err != nil {
		return err
	}
	if o.Progress != nil {
		o.Progress(fmt.Sprintf("starting Slurm with %d nodes", len(o.Nodes)))
	}
	if err := c.munge(ctx); err != nil {
		return err
	}
	var clock []string
	if o.Clock > 1 {
		clock = []string{"LD_PRELOAD=" + fakeTime(), fmt.Sprintf("FAKETIME=+0 x%g", o.Clock)}
	}
	if err := c.daemon(clock, "slurmctld", "-D", "-c"); err != nil {
		return err
	}
	for _, n := range o.Nodes {
		if err := c.daemon(nil, "slurmd", "-D", "-N", n); err != nil {
			return err
		}
	}
	return cluster.Until(ctx, "all Slurm nodes are idle", c.idle)
}

// write writes the configuration, and the device files that Slurm needs in place of GPUs.
func (c *Cluster) write() error {
	l := c.layout
	for _, sub := range []string{"state", "spool", "dev", "jobs"} {
		if err := os.Mkdir(filepath.Join(c.Dir, sub), 0o755); err != nil {
			return err
		}
	}
	key := make([]byte, 1024)
	_, _ = rand.Read(key) // does not fail
	for _, f := range []struct {
		name string
		text []byte
		mode os.FileMode
	}{{"munge.key", key, 0o400}, {"slurm.conf", []byte(l.conf()), 0o644}, {"gres.conf", []byte(l.gres()), 0o644}} {
		if err := os.WriteFile(filepath.Join(c.Dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	for i, n := range l.nodes {
		if err := os.Mkdir(filepath.Join(c.Dir, "spool", n), 0o755); err != nil {
			return err
		}
		for g := range l.gpusEach {
			if err := os.Symlink("/dev/null", l.device(i, g)); err != nil {
				return err
			}
		}
	}
	return nil
}

// munge starts munged with a new key. The cluster's processes authenticate each other with the key.
func (c *Cluster) munge(ctx context.Context) error {
	at := func(name string) string { return filepath.Join(c.Dir, name) }
	if err := c.daemon(nil, "munged", "--foreground", "--force", "--key-file="+at("munge.key"), "--socket="+c.layout.socket(),
		"--pid-file="+at("munge.pid"), "--log-file="+at("munged.log"), "--seed-file="+at("munge.seed")); err != nil {
		return err
	}
	return cluster.Until(ctx, "munged listens", func(context.Context) (string, error) {
		if err := c.died(); err != nil {
			return "", err
		}
		if _, err := os.Stat(c.layout.socket()); err != nil {
			return "no socket", nil
		}
		return "", nil
	})
}

// daemon starts a daemon. The guard ends the daemon.
func (c *Cluster) daemon(env []string, name string, args ...string) error {
	path, err := program(name)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(c.Dir, "daemons.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, append(c.environment(), env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { c.ended <- fmt.Errorf("%s ended: %v", name, cmd.Wait()) }() // returns when the guard ends it
	return nil
}

// died returns an error if a daemon has ended.
func (c *Cluster) died() error {
	select {
	case err := <-c.ended:
		return cluster.Fatal(err)
	default:
		return nil
	}
}

// environment returns this process's environment without variables of Slurm, because this process
// itself can be a Slurm job.
func (c *Cluster) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "SLURM") || strings.HasPrefix(kv, "SBATCH") || strings.HasPrefix(kv, "CUDA_")
	})
	return append(env, "SLURM_CONF="+filepath.Join(c.Dir, "slurm.conf"), c.guard.Mark(c.Dir))
}

// idle returns "" if all nodes have registered with their GPUs, otherwise a text that says what is
// missing.
func (c *Cluster) idle(ctx context.Context) (string, error) {
	if err := c.died(); err != nil {
		return "", err
	}
	out, err := c.output(ctx, "sinfo", "-N", "--noheader", "--format=%N|%t|%G")
	if err != nil {
		return "", err
	}
	nodes, err := parseNodes(out)
	if err != nil {
		return "", cluster.Fatal(err)
	}
	for _, name := range c.layout.nodes {
		if n := nodes[name]; n.state != "idle" || n.gpus != c.layout.gpusEach {
			return fmt.Sprintf("%s is %q with %d GPUs", name, n.state, n.gpus), nil
		}
	}
	return "", nil
}

// output runs one of Slurm's commands, as a user would, and returns its output.
func (c *Cluster) output(ctx context.Context, name string, args ...string) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(bounded, name, args...)
	cmd.Dir, cmd.Env = filepath.Join(c.Dir, "jobs"), c.environment()
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("running %s: %w", name, err)
	}
	return string(out), nil
}

// logTail returns the last lines of the daemons' logs.
func (c *Cluster) logTail() (all string) {
	for _, name := range []string{"munged.log", "daemons.log", "slurmctld.log", c.layout.firstLog()} {
		all += c.tail(name)
	}
	return all
}

// tail returns the name and the last lines of a file of the cluster; "" if the file is empty.
func (c *Cluster) tail(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.Dir, name)) // empty if the file does not exist yet
	if len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("\n%s ends:\n%s", name, strings.Join(lines[max(0, len(lines)-8):], "\n"))
}

// firstLog returns the name of the first node's log.
func (l layout) firstLog() string {
	if len(l.nodes) == 0 {
		return ""
	}
	return l.nodes[0] + ".log"
}
