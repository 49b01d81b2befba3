// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// deployment returns a service's last deployment if it is active, or if it has failed and belongs
// to the job's current version; otherwise nil.
func deployment(ctx context.Context, c *nomad.Client, st gang.Observed) (*api.Deployment, error) {
	if *st.Job.Type != api.JobTypeService || st.Nomad == palapi.Ended {
		return nil, nil
	}
	d, err := c.Deployment(ctx, st.Key)
	if err != nil || !nomad.Deploying(d) && !nomad.DeploymentFailed(d, st.Job) {
		return nil, err
	}
	return d, nil
}

// addDeployment explains the deployment of a service, and which version each member runs; d can be
// nil.
func (s *Snapshot) addDeployment(ctx context.Context, e *draft, st gang.Observed, d *api.Deployment) error {
	if d == nil {
		return nil
	}
	progress := reason.Reason{}
	e.Deployment, progress = describe(d, st.Job)
	e.Members = append(e.Members, progress)
	versions, err := s.nomad.VersionsOfAllocs(ctx, st.Key)
	if err != nil {
		return err
	}
	for i := range e.Allocations {
		if v, ok := versions[e.Allocations[i].ID]; ok {
			e.Allocations[i].Version = &v
		}
	}
	return nil
}

// describe returns a deployment and its progress. Nomad's count of healthy members includes members
// that it has replaced since.
func describe(d *api.Deployment, job *api.Job) (*palapi.Deployment, reason.Reason) {
	out := &palapi.Deployment{ID: d.ID, Status: d.Status, Version: d.JobVersion, Superseded: d.JobVersion < *job.Version}
	r := reason.Reason{Kind: reason.Deploys, Version: d.JobVersion}
	for name, g := range d.TaskGroups {
		if g == nil {
			continue
		}
		want := g.DesiredTotal
		if g.DesiredCanaries > 0 && !g.Promoted {
			want = g.DesiredCanaries
		}
		r.Have, r.Want = r.Have+min(g.HealthyAllocs, want), r.Want+want
		r.Tries += g.UnhealthyAllocs
		byHand := g.DesiredCanaries > 0 && !g.Promoted && !promotesItself(job, name) && d.Status == api.DeploymentStatusRunning
		out.Promotable = out.Promotable || byHand
		out.Promote = out.Promote || byHand && g.HealthyAllocs >= g.DesiredCanaries
	}
	switch {
	case out.Promote:
		r.Kind = reason.WaitsPromotion
	case d.Status == api.DeploymentStatusFailed:
		r.Kind, r.Cause = reason.DeployFailed, d.StatusDescription
	case d.Status == api.DeploymentStatusPaused:
		r.Kind = reason.DeployPaused
	}
	return out, r
}

// promotesItself reports whether Nomad promotes the canaries of a group by itself (auto_promote).
func promotesItself(job *api.Job, group string) bool {
	g := job.LookupTaskGroup(group)
	return g != nil && g.Update != nil && g.Update.AutoPromote != nil && *g.Update.AutoPromote
}
