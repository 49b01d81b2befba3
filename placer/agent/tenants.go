// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import "net/http"

// serveTenants lists how tenants stand, those of which the caller may list the jobs
// of a namespace.
func (s *server) serveTenants(w http.ResponseWriter, r *http.Request) {
	c, err := s.caller(r)
	if err == nil {
		err = c.listsSome(r.Context())
	}
	if err != nil {
		refuse(w, err)
		return
	}
	snapshot, err := s.snapshots.get(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, snapshot.Tenants(c.sees(r.Context())))
}
