// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

const (
	replicas = 3
	id       = "api"
	// quiet is how long all replicas must run before a disturbance counts as over.
	quiet = 5 * time.Second
	// patience is the time limit of a disturbance.
	patience = 5 * time.Minute
)

// service is the job on its cluster.
type service struct {
	*cluster.Cluster
	submit  []string // the command that submits a job file
	env     []string // environment of that command
	version int      // version of the job file
}

// run submits the next version of the jobspec, as the job's author would.
func (s *service) run(ctx context.Context, canaries int) error {
	s.version++
	path := filepath.Join(s.Dir, id+".nomad.hcl")
	text := fmt.Sprintf(`job %q {
  type = "service"
  meta {
    pal_class = "A"
  }
  update {
    max_parallel     = 1
    canary           = %d
    min_healthy_time = "2s"
  }
  group "serve" {
    count = %d
    task "serve" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "exec sleep %d"]
      }
      resources {
        cpu    = 100
        memory = 64
        device "nvidia/gpu" {
          count = 1
        }
      }
    }
  }
}
`, id, canaries, replicas, 100_000+s.version)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.submit[0], append(s.submit[1:], path)...)
	cmd.Env = append(append(os.Environ(), s.Env()...), s.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", s.submit, err, out)
	}
	return nil
}

// start submits the first version and returns how many nodes its replicas run on.
func (s *service) start(ctx context.Context) (nodes int, err error) {
	if _, err := s.follow(ctx, &watch{}, func() error { return s.run(ctx, 0) }); err != nil {
		return 0, err
	}
	live, err := s.live(ctx)
	on := map[string]bool{}
	for _, a := range live {
		on[a.NodeID] = true
	}
	return len(on), err
}

// live returns the allocations whose desired status is to run.
func (s *service) live(ctx context.Context) ([]*api.AllocationListStub, error) {
	all, _, err := s.API().Jobs().Allocations(id, true, (&api.QueryOptions{}).WithContext(ctx))
	return slices.DeleteFunc(all, func(a *api.AllocationListStub) bool {
		return a.DesiredStatus != api.AllocDesiredStatusRun || cluster.Ended(a)
	}), err
}

// disturb applies a disturbance to the service and counts its replicas until all of them run again.
func (s *service) disturb(ctx context.Context, what string) (event, error) {
	live, err := s.live(ctx)
	if err != nil {
		return event{}, err
	}
	w := &watch{before: map[string]bool{}, healthy: map[string]bool{}}
	for _, a := range live {
		w.before[a.ID], w.healthy[a.ID] = true, true
	}
	var e event
	switch what {
	case nodeLost:
		e, err = s.lose(ctx, w, live[0])
	case rolling:
		w.renews = true
		e, err = s.follow(ctx, w, func() error { return s.run(ctx, 0) })
	case canary:
		w.renews = true
		e, err = s.follow(ctx, w, func() error { return s.run(ctx, 1) })
	}
	e.What = what
	return e, err
}

// lose kills the client of a replica, and starts it again when all replicas run on other nodes.
// From the kill on, the replica counts as lost, as if its machine had failed.
func (s *service) lose(ctx context.Context, w *watch, of *api.AllocationListStub) (event, error) {
	client := s.Clients()[slices.IndexFunc(s.Clients(), func(a *cluster.Agent) bool { return a.Name == of.NodeName })]
	w.gone = of.NodeID
	e, err := s.follow(ctx, w, func() error { return client.Kill(ctx) })
	if err != nil {
		return e, err
	}
	return e, client.Start(ctx)
}

// follow calls do, and watches the replicas until all of them have run for a while. Meanwhile,
// follow promotes canaries as soon as Nomad allows this.
func (s *service) follow(ctx context.Context, w *watch, do func() error) (event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w.begin(time.Now())
	done := make(chan error, 1)
	go func() { done <- do() }()
	for acted := false; ; {
		select {
		case err := <-done:
			if err != nil {
				return event{}, err
			}
			acted = true
		default:
		}
		live, err := s.live(ctx)
		if err != nil {
			return event{}, err
		}
		d, _, err := s.API().Jobs().LatestDeployment(id, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return event{}, err
		}
		if w.look(time.Now(), live, d) && acted {
			return w.event, nil
		}
		if promotable(d) {
			if _, _, err := s.API().Deployments().PromoteAll(d.ID, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
				return event{}, fmt.Errorf("promote: %w", err)
			}
		}
		if err := cluster.Pause(ctx, pause); err != nil {
			return event{}, fmt.Errorf("%d replicas, deployment %v: %w", len(live), d, err)
		}
	}
}

// promotable reports whether a deployment waits for somebody to promote its canaries.
func promotable(d *api.Deployment) bool {
	if d == nil || d.Status != api.DeploymentStatusRunning {
		return false
	}
	for _, g := range d.TaskGroups {
		if g.DesiredCanaries > 0 && !g.Promoted && g.HealthyAllocs >= g.DesiredCanaries {
			return true
		}
	}
	return false
}
