// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"regexp"
	"testing"
)

// The page shows explain's first and last sentences, in its reader's time zone, without changing
// their words.
func TestExplainIsWorded(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string][]string{"bob": {"research"}})
	f.has(gpuJob("research", "mine", 1), "GPU-1")
	f.has(gpuJob("research", "wide", 16))
	r := f.run(openConfig).ready()
	for path, want := range map[string]string{
		"mine/explain?namespace=research":                   `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ UTC \(`,
		"mine/explain?namespace=research&zone=Asia/Kolkata": `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ IST \(`,
		"mine/explain?namespace=research&zone=Nowhere":      `"summary": "mine runs on 1 GPU of node one, placed [-0-9]+ [:0-9]+ UTC \(`,
		"wide/explain?namespace=research": `"summary": "wide can never start here as written: needs 16 GPUs; .*\s+"next": \[\s+` +
			`"Change the job, or give a node what the job needs; nomad-pal tries again when a node changes, or after a few minutes\."\s+\]`,
	} {
		if status, text := r.send(http.MethodGet, "/v1/job/"+path, "bob", ""); status != http.StatusOK || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %d %s\nwant %s", path, status, text, want)
		}
	}
}
