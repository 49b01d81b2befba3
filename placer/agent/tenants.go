// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import "net/http"

// serveTenants lists how tenants stand, those of which the caller may list the jobs
// of a namespace.
func (s *server) serveTenants(w http.ResponseWriter, r *http.Request) {
	c, snapshot, ok := s.snapshotFor(w, r, (*caller).listsSome)
	if !ok {
		return
	}
	writeJSON(w, http.StatusOK, snapshot.Tenants(c.sees(r.Context())))
}
