// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"
	"slices"
	"strings"
)

// capability is what a request needs.
type capability string

const (
	readNodes  capability = "node:read"
	listJobs   capability = "list-jobs"
	readJobs   capability = "read-job"
	submitJobs capability = "submit-job"
	lifecycle  capability = "alloc-lifecycle"
	readFS     capability = "read-fs"
	variables  capability = "variables"
	readVars   capability = "read-variables"
)

// Token is what a secret may do. A management token may do everything.
type Token struct {
	Management bool
	// Nodes: it may read nodes.
	Nodes bool
	// Namespaces are its capabilities, by namespace or "*": list-jobs, read-job,
	// submit-job, alloc-lifecycle, read-fs, variables, read-variables.
	Namespaces map[string][]string
}

// SetTokens switches ACLs on, with these secrets. Requests without a token, or
// with another one, are refused.
func (s *Server) SetTokens(tokens map[string]Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acl = tokens
}

// errNoToken refuses a token that Nomad does not know.
var errNoToken = httpError(http.StatusForbidden, "ACL token not found")

// authorize reports whether the request's token has a right; in namespace "*", whether it
// has it anywhere.
func (s *Server) authorize(r *http.Request, namespace string, what capability) error {
	if s.acl == nil {
		return nil
	}
	secret := r.Header.Get("X-Nomad-Token")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && secret == "" {
		secret = bearer
	}
	t, known := s.acl[secret]
	switch {
	case !known && secret != "":
		return errNoToken
	case t.Management, what == readNodes && t.Nodes:
		return nil
	}
	for ns, rights := range t.Namespaces {
		if (ns == "*" || namespace == "*" || ns == namespace) && slices.Contains(rights, string(what)) {
			return nil
		}
	}
	return httpError(http.StatusForbidden, "Permission denied")
}

// tokenSelf is GET /v1/acl/token/self.
func (s *Server) tokenSelf(r *http.Request) (any, error) {
	if s.acl == nil {
		return map[string]string{"AccessorID": "acls-disabled", "Name": "ACLs disabled token", "Type": "client"}, nil // 1.11.3; earlier ones answer 400
	}
	t, known := s.acl[r.Header.Get("X-Nomad-Token")]
	switch {
	case !known:
		return nil, errNoToken
	case t.Management:
		return map[string]string{"Type": "management"}, nil
	}
	return map[string]string{"Type": "client"}, nil
}
