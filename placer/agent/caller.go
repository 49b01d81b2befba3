// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// caller is the sender of a request. The agent sees everything in Nomad, but shows a caller only
// what Nomad would show the caller's token. The agent asks Nomad at each request, because a cache
// would keep revoked tokens valid.
type caller struct {
	client  *nomad.Client
	nomad   *api.Client // of client
	secret  string      // the token; "" if the request has none
	storage string      // the namespace of the placer's variables
	// lists caches, for this request, the namespaces whose jobs the caller can list.
	lists map[string]bool
}

// caller reads the token from the headers that Nomad's own API uses.
func (s *server) caller(r *http.Request) (*caller, error) {
	client, err := s.file.Nomad.connectAs(tokenOf(r))
	if err != nil {
		return nil, err
	}
	storage := cmp.Or(s.file.Nomad.Namespace, api.DefaultNamespace)
	return &caller{client, client.API(), tokenOf(r), storage, map[string]bool{}}, nil
}

// tokenOf returns the request's token, or "" if it has none.
func tokenOf(r *http.Request) string {
	token := r.Header.Get("X-Nomad-Token")
	scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		token = cmp.Or(token, strings.TrimSpace(bearer))
	}
	return token
}

// errDenied is the error for a request that Nomad would also refuse.
var errDenied = errors.New("permission denied")

func denied(err error) bool { return errors.Is(err, errDenied) }

// needs turns Nomad's refusal into an error that names the missing capability.
func needs(err error, capability string) error {
	switch nomad.StatusOf(err) {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("%w: the token lacks %s, or has expired or been deleted", errDenied, capability)
	case http.StatusInternalServerError:
		// Before Nomad 1.8, and on some routes since then, Nomad answers with status 500 to an
		// unknown token.
		if strings.Contains(err.Error(), "ACL token not found") {
			return fmt.Errorf("%w: Nomad does not know the token", errDenied)
		}
	}
	return err
}

func one(ctx context.Context, namespace string) *api.QueryOptions {
	return (&api.QueryOptions{Namespace: namespace, PerPage: 1}).WithContext(ctx)
}

// listsSome returns an error unless the caller can list the jobs of at least one namespace.
func (c *caller) listsSome(ctx context.Context) error {
	// For the namespace "*", Nomad refuses only callers who can list nothing.
	_, _, err := c.nomad.Jobs().List(one(ctx, api.AllNamespacesNamespace))
	return needs(err, `the capability "list-jobs" (needed in at least one namespace)`)
}

// listsIn reports whether the caller can list the jobs of a namespace.
func (c *caller) listsIn(ctx context.Context, namespace string) (bool, error) {
	can, asked := c.lists[namespace]
	if asked {
		return can, nil
	}
	_, _, err := c.nomad.Jobs().List(one(ctx, namespace))
	if err = needs(err, "list-jobs"); err != nil && !denied(err) {
		return false, err
	}
	c.lists[namespace] = err == nil
	return err == nil, nil
}

// sees returns a function that reports whether the caller may see the jobs of a namespace. While
// Nomad does not answer, the function returns false.
func (c *caller) sees(ctx context.Context) palapi.Sees {
	return func(namespace string) bool {
		can, err := c.listsIn(ctx, namespace)
		return can && err == nil
	}
}

// asOperator returns a function that reports whether the caller is an operator. The function asks
// Nomad at most once, at the first call.
func (c *caller) asOperator(ctx context.Context) func() bool {
	return sync.OnceValue(func() bool { return c.operates(ctx) })
}

// visible returns the jobs in namespaces that the caller can list, without the names of jobs in
// other namespaces.
func (c *caller) visible(ctx context.Context, jobs []palapi.JobStatus) ([]palapi.JobStatus, error) {
	out := []palapi.JobStatus{}
	for _, j := range jobs {
		can, err := c.listsIn(ctx, j.Namespace)
		if err != nil {
			return nil, err
		}
		if can {
			out = append(out, j.RedactedFor(c.sees(ctx)))
		}
	}
	return out, nil
}

// readsJob fails if the caller cannot read the job. In a namespace that the caller may not read,
// the error is the same whether the job exists or not.
func (c *caller) readsJob(ctx context.Context, k cluster.JobKey) error {
	if err := request.Addressable(k.ID); err != nil {
		return fmt.Errorf("%w: %w", nomad.NoJob(k), err)
	}
	_, _, err := c.nomad.Jobs().Info(k.ID, (&api.QueryOptions{Namespace: k.Namespace}).WithContext(ctx))
	if nomad.StatusOf(err) == http.StatusNotFound {
		return nomad.NoJob(k)
	}
	return needs(err, fmt.Sprintf("the capability %q in namespace %q", "read-job", k.Namespace))
}

func (c *caller) readsNodes(ctx context.Context) error {
	_, _, err := c.nomad.Nodes().List(one(ctx, ""))
	return needs(err, `node { policy = "read" }`)
}

// readsNodesOrJobs returns an error unless the caller can read nodes, or list the jobs of at least
// one namespace.
func (c *caller) readsNodesOrJobs(ctx context.Context) error {
	if err := c.readsNodes(ctx); !denied(err) {
		return err
	}
	return c.listsSome(ctx)
}

// operates reports whether the caller is an operator. An operator's token can read the variable
// nomad-pal/failures, which names jobs of all namespaces.
func (c *caller) operates(ctx context.Context) bool {
	_, _, err := c.nomad.Variables().Peek(store.FailuresPath, one(ctx, c.storage))
	return err == nil
}

// plans returns an error unless Nomad lets the caller plan the job. To find out, plans makes Nomad
// plan the gated job, which is cheap because the gate excludes all nodes.
func (c *caller) plans(ctx context.Context, gated *api.Job) error {
	w := (&api.WriteOptions{Namespace: *gated.Namespace}).WithContext(ctx)
	_, _, err := c.nomad.Jobs().PlanOpts(gated, &api.PlanOptions{}, w)
	if errors.Is(nomad.NoDryRun(err), nomad.ErrNoDryRun) {
		return nil
	}
	return needs(err, fmt.Sprintf("the capability %q or %q in namespace %q", "submit-job", "plan-job", *gated.Namespace))
}

// refuse answers with the status that fits the error.
func refuse(w http.ResponseWriter, err error) {
	if crowded(w, err) {
		return
	}
	status, text := http.StatusBadGateway, publicError(err) // Nomad answered with an unexpected error
	switch {
	case denied(err):
		status = http.StatusForbidden
	case errors.Is(err, errPriority), errors.Is(err, errNotQueued), errors.Is(err, placer.ErrNotQuarantined), errors.Is(err, nomad.ErrDeploymentFailed):
		status = http.StatusBadRequest
	case errors.Is(err, errNotAtWork):
		status = http.StatusServiceUnavailable
	case errors.Is(err, nomad.ErrNoJob):
		status = http.StatusNotFound
	case nomad.Refused(err):
		text = "Nomad refuses the agent's own token: " + text
	}
	http.Error(w, text, status)
}

// crowded answers 503 if programs of this machine use up Nomad's connections.
func crowded(w http.ResponseWriter, err error) bool {
	if nomad.StatusOf(err) != http.StatusTooManyRequests {
		return false
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "too many requests ask Nomad from this machine at once: try again", http.StatusServiceUnavailable)
	return true
}

// publicError returns the error's text in a form that anybody may read. publicError replaces the
// text of connection errors, because Nomad's address belongs only in the agent's own log.
func publicError(err error) string {
	var transport *url.Error
	switch {
	case errors.Is(err, nomad.ErrUnknownOutcome):
		return nomad.ErrUnknownOutcome.Error()
	case !errors.As(err, &transport):
		return err.Error()
	case transport.Timeout():
		return "Nomad did not answer the agent in time"
	}
	return "the agent cannot reach Nomad"
}

// explained returns the job id in the path <id>/explain.
func explained(path string) (id string, ok bool) {
	id, ok = strings.CutSuffix(path, "/explain")
	return id, ok && id != ""
}
