// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// servePlan explains what would happen to a job: POST {"Job": …}.
func (s *server) servePlan(w http.ResponseWriter, r *http.Request) {
	var request struct{ Job *api.Job }
	done, ok := s.bodies.decode(w, r, &request)
	if !ok {
		return
	}
	defer done()
	job, err := sentJob(r, request.Job)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.misdirected(w, r, job) {
		return
	}
	c, err := s.caller(r)
	if err == nil {
		err = c.plans(r.Context(), rewrite.Gate(job))
	}
	if why, ok := nomad.Invalid(err); ok {
		e := query.Refused(job)
		if e != nil { // this explanation shows the author what to change
			writeJSON(w, http.StatusOK, e)
			return
		}
		http.Error(w, "Nomad refuses the job: "+why, http.StatusBadRequest)
		return
	}
	if err != nil {
		refuseAs(w, err)
		return
	}
	snapshot, err := s.snapshots.upToNow(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	e, err := snapshot.Plan(r.Context(), job)
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, e.RedactedFor(c.sees(r.Context())))
}

// misdirected refuses a job for a region that this agent does not serve. Nomad would forward the job
// to that region, and the answer would be about other GPUs.
func (s *server) misdirected(w http.ResponseWriter, r *http.Request, job *api.Job) bool {
	region := r.URL.Query().Get("region") // Nomad prefers it to the job's
	if region == "" && *job.Region != api.GlobalRegion {
		region = *job.Region // if a job names the region "global", Nomad does not forward it
	}
	if region == "" {
		return false
	}
	client, err := s.file.Nomad.connectAs("")
	if err != nil {
		return false
	}
	own, err := client.API().Status().Leader()
	if err != nil {
		return false
	}
	leader, err := client.API().Status().RegionLeader(region)
	if leader == own || err != nil && !nomad.NoRegion(err) {
		return false
	}
	http.Error(w, fmt.Sprintf("job %q is for region %q, but this agent serves another region", *job.ID, region), http.StatusMisdirectedRequest)
	return true
}

// refuseAs answers the request with the error that Nomad returned to the agent.
func refuseAs(w http.ResponseWriter, err error) {
	if crowded(w, err) {
		return
	}
	var unexpected api.UnexpectedResponseError
	switch {
	case denied(err):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.As(err, &unexpected) && unexpected.StatusCode() != 0:
		http.Error(w, unexpected.Body(), unexpected.StatusCode())
	default:
		http.Error(w, publicError(err), http.StatusBadGateway)
	}
}
