// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"
	"slices"
	"strings"
)

// capability is a permission that a request needs.
type capability string

const (
	readNodes  capability = "node:read"
	listJobs   capability = "list-jobs"
	readJobs   capability = "read-job"
	submitJobs capability = "submit-job"
	lifecycle  capability = "alloc-lifecycle"
	variables  capability = "variables"
	readVars   capability = "read-variables"
)

// Token holds the permissions of a token. Tokens are identified by their secrets. A management
// token may do everything.
type Token struct {
	Management bool
	// Nodes is true if the token may read nodes.
	Nodes bool
	// Namespaces maps a namespace to the token's capabilities in it. The namespace "*" means all
	// namespaces. The capabilities are list-jobs, read-job, submit-job, alloc-lifecycle,
	// variables, and read-variables.
	Namespaces map[string][]string
}

// SetTokens enables ACLs. The keys of the map are the secrets of the tokens. After the call, Nomad
// refuses requests with an unknown token. Requests without a token have the permissions of the
// token whose secret is "".
func (s *Server) SetTokens(tokens map[string]Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acl = tokens
}

// errNoToken is the error for a request with an unknown token.
var errNoToken = httpError(http.StatusForbidden, "ACL token not found")

// authorize returns an error if the request's token lacks a right in a namespace. For the namespace
// "*", a right in any namespace is enough.
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

// tokenSelf serves GET /v1/acl/token/self.
func (s *Server) tokenSelf(r *http.Request) (any, error) {
	if s.acl == nil {
		return map[string]string{"AccessorID": "acls-disabled", "Name": "ACLs disabled token", "Type": "client"}, nil // as in 1.11.3; earlier versions answer 400
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
