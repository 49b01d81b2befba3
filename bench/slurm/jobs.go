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
	// Limit is what Slurm is told that the job takes at most, by the controller's clock. Slurm
	// counts in minutes.
	Limit time.Duration
	// Command is what each task runs.
	Command []string
}

// script is what a user would write: a gang's tasks are started by srun, a lone one needs none.
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

// minutes rounds up, as a user does who must not be too short.
func minutes(d time.Duration) int { return max(1, int((d+time.Minute-1)/time.Minute)) }

// Submit runs sbatch and returns the job's number.
func (c *Cluster) Submit(ctx context.Context, j Job) (int, error) {
	path := filepath.Join(c.Dir, "jobs", j.Name+".sh")
	if err := os.WriteFile(path, []byte(j.script()), 0o755); err != nil {
		return 0, err
	}
	out, err := c.output(ctx, "sbatch", "--parsable", "--output="+filepath.Join(c.Dir, "jobs", j.Name+".out"), path)
	if err != nil {
		return 0, fmt.Errorf("submit %q: %w", j.Name, err)
	}
	return number(out)
}

// Output is the end of what a job printed, on lines of its own; "" is nothing.
func (c *Cluster) Output(name string) string { return c.tail("jobs/" + name + ".out") }

// number reads what sbatch --parsable prints: a number, and the cluster's name where it has some.
func number(out string) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	id, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read the job's number from what sbatch printed, %q: %w", out, err)
	}
	return id, nil
}

// Queued is a job that Slurm has not done with.
type Queued struct {
	ID    int
	Name  string
	State string // PENDING, RUNNING, COMPLETING, …
	// Why is the reason of a pending job, or where it runs.
	Why string
}

// squeueFormat is what parseQueue reads; names have no bars.
const squeueFormat = "%i|%j|%T|%R"

// Queue are the jobs that Slurm has not done with.
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
			return nil, fmt.Errorf("read squeue: %q has %d of 4 cells", line, len(cells))
		}
		q := Queued{Name: cells[1], State: cells[2], Why: cells[3]}
		if q.ID, err = strconv.Atoi(cells[0]); err != nil {
			return nil, fmt.Errorf("read squeue: job number in %q: %w", line, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// parseNodes reads sinfo -N with the format "%N|%t|%G": the state of each node, and how many GPUs
// Slurm knows of.
func parseNodes(out string) (map[string]node, error) {
	nodes := map[string]node{}
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 1 && cells[0] == "" {
			continue
		}
		if len(cells) != 3 {
			return nil, fmt.Errorf("read sinfo: %q has %d of 3 cells", line, len(cells))
		}
		n := node{state: cells[1]}
		for _, m := range gpus.FindAllStringSubmatch(cells[2], -1) {
			count, _ := strconv.Atoi(m[1]) // the pattern's digits
			n.gpus += count
		}
		nodes[cells[0]] = n
	}
	return nodes, nil
}

// gpus are those of a node's resources, with or without a type: gpu:4, gpu:a100:2(S:0,1).
var gpus = regexp.MustCompile(`(?:^|,)gpu(?::[^:,(]+)?:([0-9]+)`)

// node is what Slurm says of one.
type node struct {
	state string // "idle", "mix", "down*", …
	gpus  int
}

// CancelAll ends all jobs.
func (c *Cluster) CancelAll(ctx context.Context) error {
	_, err := c.output(ctx, "scancel", "--user="+c.layout.user)
	return err
}
