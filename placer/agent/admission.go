// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Admission configures which jobs the endpoint /v1/admission gates for the placer. Without this
// block, the agent does not serve the endpoint.
type Admission struct {
	// Types are the job types that get a gate: batch, service or both; batch by default. Batch and
	// service jobs whose type is not in Types get a gate only if they have a `pal_*` hint.
	Types []string `hcl:"types,optional"`
	// Meta has default hints, `pal_*`. A gated job gets each default, unless its own hints set or
	// contradict it.
	Meta map[string]string `hcl:"meta,optional"`
	// Namespaces are the namespaces whose jobs get a gate; all by default.
	Namespaces []string `hcl:"namespaces,optional"`
}

// Validate checks types and hints.
func (a *Admission) Validate() error {
	if a == nil {
		return nil
	}
	for _, t := range a.Types {
		if t != api.JobTypeBatch && t != api.JobTypeService {
			return fmt.Errorf("admission: types: %q is neither batch nor service", t)
		}
	}
	if _, err := rewrite.ParseHints(&api.Job{Meta: a.Meta}); err != nil {
		return fmt.Errorf("admission: %w", err)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Meta)) {
		if !strings.HasPrefix(k, "pal_") {
			return fmt.Errorf("admission: meta %s is not a hint: hints begin with pal_", k)
		}
	}
	return nil
}

// Review is the answer to an admission request, in the form that the json_patch_webhook mutator and
// the webhook validator of the Nomad Admission Control Proxy expect. A Review contains changes to
// the job, warnings for the author, and errors, which make the proxy refuse the job. Mutators
// before version 0.12 ignore errors, so configure the endpoint as mutator and as validator.
type Review struct {
	Patch    []Patch  `json:"patch"`
	Warnings []string `json:"warnings"`
	Errors   []string `json:"errors"`
}

// Patch is one operation of a JSON patch (RFC 6902).
type Patch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Review decides what to do with a job that is about to be registered. children is true if the
// placer can place dispatched and periodic jobs.
func (a *Admission) Review(job *api.Job, children bool) Review {
	r := Review{Patch: []Patch{}, Warnings: []string{}, Errors: []string{}}
	full, err := canonical(job)
	switch {
	case err != nil:
		r.Errors = append(r.Errors, err.Error())
		return r
	case !rewrite.AsksGPUs(full):
		if a.wants(full) {
			r.warn(request.MistypedDevices(full))
		}
		return r
	}
	wanted := a.wants(full)
	_, pinned := rewrite.Pinned(full)
	if pinned || !wanted {
		return r // the job already has pins, or is not for the placer
	}
	why := request.Takes(full)
	if why != nil && request.Servable(full) == nil && !rewrite.Gated(full) { // a gate would hold up the job's other groups for no reason
		r.warn(fmt.Sprintf("%v. The job is left to Nomad", why))
		return r
	}
	if err := refusal(full, children); err != nil {
		r.Errors = append(r.Errors, "nomad-pal: "+err.Error())
		return r
	}
	a.patch(&r, job, full)
	if len(r.Patch) > 0 { // warn only once: when the proxy then calls the endpoint as validator, the job already has its gate
		r.Warnings = append(r.Warnings, fmt.Sprintf("this job is pending until nomad-pal has chosen its GPUs; see %s", palapi.ExplainCommand(*full.Namespace, *full.ID)))
		r.warn(request.MistypedDevices(full))
	}
	return r
}

// warn adds a warning for the author of the job, unless the sentence is "".
func (r *Review) warn(sentence string) {
	if sentence != "" {
		r.Warnings = append(r.Warnings, "nomad-pal: "+sentence)
	}
}

// canonical returns a copy of the job in which Nomad's defaults fill the fields that the author
// left out.
func canonical(job *api.Job) (*api.Job, error) {
	if err := cluster.Wellformed(job); err != nil {
		return nil, fmt.Errorf("nomad-pal: %w", err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var out api.Job
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	out.Name = cmp.Or(out.Name, out.ID)
	cluster.Canonicalize(&out)
	return &out, nil
}

// sentJob returns the canonical job of a request. As in Nomad's API, a job without a namespace
// belongs to the namespace in the query.
func sentJob(r *http.Request, job *api.Job) (*api.Job, error) {
	namespace := r.URL.Query().Get("namespace")
	if job != nil && namespace != "" && (job.Namespace == nil || *job.Namespace == "") {
		own := *job
		own.Namespace, job = &namespace, &own
	}
	job, err := canonical(job)
	if err != nil {
		return nil, err
	}
	return job, request.Addressable(*job.ID)
}

// wants reports whether the placer should place a job that requests GPUs.
func (a *Admission) wants(job *api.Job) bool {
	types := []string{api.JobTypeBatch}
	if a != nil {
		if len(a.Types) > 0 {
			types = a.Types
		}
		if len(a.Namespaces) > 0 && !slices.Contains(a.Namespaces, *job.Namespace) {
			return false
		}
	}
	switch {
	case rewrite.Gated(job):
		return true
	case *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch || job.IsMultiregion():
		return false
	case request.ChoosesInstances(job):
		return false // its author chooses single GPUs, by a constraint on ${device.ids}
	}
	hint := func(key string) bool { return strings.HasPrefix(key, "pal_") }
	return slices.Contains(types, *job.Type) || hasMeta(job, hint)
}

// hasMeta reports whether a meta key of the job or of one of its groups matches.
func hasMeta(job *api.Job, is func(key string) bool) bool {
	has := func(meta map[string]string) bool { return slices.ContainsFunc(slices.Collect(maps.Keys(meta)), is) }
	return has(job.Meta) || slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return has(g.Meta) })
}

// refusal returns why a job for the placer could never run.
func refusal(job *api.Job, children bool) error {
	if _, err := rewrite.ParseHints(job); err != nil {
		return err
	}
	if err := request.Takes(job); err != nil {
		return err
	}
	p := job.ParameterizedJob
	switch {
	case p != nil && p.Payload == "required":
		return fmt.Errorf("job %q requires a payload, which Nomad would discard if nomad-pal changed a run of the job: "+
			"make the payload optional and use meta, or constrain the job's GPUs to a variability class yourself", *job.ID)
	case cluster.Template(job) && !children:
		return cluster.ErrNoRPC
	}
	return nil
}

// patch adds the gate and the default hints. full is the job with Nomad's defaults.
func (a *Admission) patch(r *Review, job, full *api.Job) {
	if !rewrite.FullyGated(job) {
		gated := rewrite.Gate(job)
		gate := gated.Constraints[len(gated.Constraints)-1]
		if job.Constraints == nil {
			r.Patch = append(r.Patch, Patch{"add", "/Constraints", []*api.Constraint{gate}})
		} else {
			r.Patch = append(r.Patch, Patch{"add", "/Constraints/-", gate})
		}
	}
	if a == nil {
		return
	}
	missing, left := a.missing(full)
	switch {
	case len(missing) == 0:
	case job.Meta == nil:
		r.Patch = append(r.Patch, Patch{"add", "/Meta", missing})
	default:
		for _, k := range slices.Sorted(maps.Keys(missing)) {
			r.Patch = append(r.Patch, Patch{"add", "/Meta/" + k, missing[k]})
		}
	}
	if len(r.Patch) > 0 {
		r.Warnings = append(r.Warnings, left...)
	}
}

// missing returns the default hints that the job gets, and warnings about defaults that contradict
// the author's hints.
func (a *Admission) missing(job *api.Job) (hints map[string]string, left []string) {
	with, hints := *job, map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(a.Meta)) {
		if hasMeta(job, func(key string) bool { return key == k }) {
			continue
		}
		had := with.Meta
		with.Meta = maps.Clone(had)
		if with.Meta == nil {
			with.Meta = map[string]string{}
		}
		with.Meta[k] = a.Meta[k]
		if _, err := rewrite.ParseHints(&with); err != nil {
			with.Meta = had
			left = append(left, fmt.Sprintf("nomad-pal leaves out its default %s = %q for this job: %v", k, a.Meta[k], err))
			continue
		}
		hints[k] = a.Meta[k]
	}
	return hints, left
}

// serveAdmission answers admission requests. serveAdmission needs no token, because the answer
// depends only on the request and the configuration.
func (s *server) serveAdmission(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Job *api.Job `json:"job"`
	}
	done, ok := s.bodies.decode(w, r, &request)
	if !ok {
		return
	}
	defer done()
	writeJSON(w, http.StatusOK, s.file.Admission.Review(request.Job, s.cfg.Children))
}
