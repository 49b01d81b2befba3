// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Job is a batch job whose tasks start together or not at all.
type Job struct {
	Name        string
	Tasks       int
	GPUsPerTask int
	// Limit is the job's time limit by the controller's clock, rounded up to whole minutes, Slurm's
	// unit.
	Limit time.Duration
	// Command is the command line of each task.
	Command []string
}

// script returns a batch script as a user would write it. srun starts the tasks of a gang; a single
// task needs no srun.
func (j Job) script() string {
	var words []string
	for _, w := range j.Command {
		words = append(words, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	run := strings.Join(words, " ")
	if j.Tasks > 1 {
		run = "srun " + run
	}
	return fmt.Sprintf(`#!/bin/sh
#SBATCH --job-name=%s
#SBATCH --ntasks=%d
#SBATCH --gpus-per-task=%d
#SBATCH --cpus-per-task=%d
#SBATCH --time=%d
#SBATCH --no-requeue
exec %s
`, j.Name, j.Tasks, j.GPUsPerTask, j.GPUsPerTask, minutes(j.Limit), run)
}

// minutes rounds up, because a limit must not be too short.
func minutes(d time.Duration) int { return max(1, int((d+time.Minute-1)/time.Minute)) }

// Submit runs sbatch and returns the job's number.
func (c *Cluster) Submit(ctx context.Context, j Job) (int, error) {
	path := filepath.Join(c.Dir, "jobs", j.Name+".sh")
	if err := os.WriteFile(path, []byte(j.script()), 0o755); err != nil {
		return 0, err
	}
	out, err := c.output(ctx, "sbatch", "--parsable", "--output="+filepath.Join(c.Dir, "jobs", j.Name+".out"), path)
	if err != nil {
		return 0, fmt.Errorf("submitting %q: %w", j.Name, err)
	}
	return number(out)
}

// Output returns the last lines that a job printed; "" if there are none.
func (c *Cluster) Output(name string) string { return c.tail("jobs/" + name + ".out") }

// number parses the output of sbatch --parsable: a number, and the cluster's name if it has one.
func number(out string) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	id, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("reading the job's number from the output of sbatch, %q: %w", out, err)
	}
	return id, nil
}

// Queued is a job that Slurm lists in its queue.
type Queued struct {
	ID    int
	Name  string
	State string // PENDING, RUNNING, COMPLETING, …
	// Why is the reason why a pending job waits, or the nodes of a running job.
	Why string
}

// squeueFormat is the format that parseQueue reads. Names do not contain the separator.
const squeueFormat = "%i|%j|%T|%R"

// Queue returns the jobs that Slurm lists in its queue.
func (c *Cluster) Queue(ctx context.Context) ([]Queued, error) {
	out, err := c.output(ctx, "squeue", "--noheader", "--format="+squeueFormat)
	if err != nil {
		return nil, err
	}
	return parseQueue(out)
}

func parseQueue(out string) (all []Queued, err error) {
	for line := range strings.Lines(out) {
		cells := strings.SplitN(strings.TrimSpace(line), "|", 4)
		if len(cells) == 1 && cells[0] == "" {
			continue
		}
		if len(cells) < 4 {
			return nil, fmt.Errorf("reading squeue: %q has %d of 4 cells", line, len(cells))
		}
		q := Queued{Name: cells[1], State: cells[2], Why: cells[3]}
		if q.ID, err = strconv.Atoi(cells[0]); err != nil {
			return nil, fmt.Errorf("reading squeue: job number in %q: %w", line, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// parseNodes parses the output of sinfo -N with the format "%N|%t|%G": each node's state, and the
// number of GPUs that Slurm knows.
func parseNodes(out string) (map[string]node, error) {
	nodes := map[string]node{}
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 1 && cells[0] == "" {
			continue
		}
		if len(cells) != 3 {
			return nil, fmt.Errorf("reading sinfo: %q has %d of 3 cells", line, len(cells))
		}
		n := node{state: cells[1]}
		for _, m := range gpus.FindAllStringSubmatch(cells[2], -1) {
			count, _ := strconv.Atoi(m[1]) // the pattern matches only digits
			n.gpus += count
		}
		nodes[cells[0]] = n
	}
	return nodes, nil
}

// gpus matches the GPUs among a node's resources, with or without a type: gpu:4, gpu:a100:2(S:0,1).
var gpus = regexp.MustCompile(`(?:^|,)gpu(?::[^:,(]+)?:([0-9]+)`)

// node is the state of a node according to Slurm.
type node struct {
	state string // "idle", "mix", "down*", …
	gpus  int
}

// CancelAll cancels all jobs.
func (c *Cluster) CancelAll(ctx context.Context) error {
	_, err := c.output(ctx, "scancel", "--user="+c.layout.user)
	return err
}
