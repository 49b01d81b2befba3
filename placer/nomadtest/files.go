// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// SetProgress sets the function that returns the content of the file alloc/pal-progress. The
// function is called for the first member of a job, and returns "" if the member has no such file.
// ran is how long the member has run.
func (s *Server) SetProgress(written func(k Key, ran time.Duration) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = written
}

// plainText is the type of an answer that is not JSON.
type plainText string

// serveFile returns the content of a file of an allocation.
func (s *Server) serveFile(r *http.Request, id string) (any, error) {
	a := s.allocs[id]
	if a == nil {
		return nil, httpError(http.StatusNotFound, "Unknown allocation %q", id)
	}
	if err := s.authorize(r, a.key.Namespace, readFS); err != nil {
		return nil, err
	}
	if n := s.nodes[a.node]; n == nil || !ready(n.Node) {
		return nil, httpError(http.StatusNotFound, "No path to node")
	}
	path, text := r.URL.Query().Get("path"), ""
	if !a.began.IsZero() && path == "alloc/pal-progress" && s.progress != nil && strings.HasSuffix(a.name, "[0]") {
		text = s.progress(a.key, s.now().Sub(a.began))
	}
	if text == "" {
		return nil, httpError(http.StatusBadRequest, "stat /nomad/alloc/%s/%s: no such file or directory", id, path)
	}
	most, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		return nil, httpError(http.StatusBadRequest, "error parsing limit: %v", err)
	}
	return plainText(text[:min(len(text), most)]), nil
}
