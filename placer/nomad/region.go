// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// noRegion is Nomad's answer, with status 500, to a request for a region that it does not know.
const noRegion = "No path to region"

// hasNoRegion is the first part of the error that replaces noRegion.
const hasNoRegion = "Nomad has no region"

// NoRegion reports whether an error means that Nomad does not know the region.
func NoRegion(err error) bool { return err != nil && strings.Contains(err.Error(), hasNoRegion) }

// NamesRegions returns a wrapper of transports for [NewClient]. If Nomad does not know the region
// of a request, the error names the region, the setting that it comes from, and the regions that
// exist.
func NamesRegions(setting string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return regional{next, setting} }
}

type regional struct {
	next    http.RoundTripper
	setting string
}

// RoundTrip implements [http.RoundTripper].
func (t regional) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusInternalServerError {
		return resp, err
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, int64(len(noRegion))))
	text := string(start)
	if err == nil && text == noRegion {
		text = fmt.Sprintf("%s %q (%s)%s", hasNoRegion, r.URL.Query().Get("region"), t.setting, t.regions(r))
	}
	resp.Body = readCloser{io.MultiReader(strings.NewReader(text), resp.Body), resp.Body}
	resp.ContentLength = -1
	return resp, nil
}

// regions lists the regions that exist, or returns "" if Nomad does not say.
func (t regional) regions(r *http.Request) string {
	of := r.Clone(r.Context())
	of.Method = http.MethodGet
	of.Body = nil
	of.ContentLength = 0
	of.URL.Path = "/v1/regions"
	of.URL.RawPath = ""
	of.URL.RawQuery = ""
	resp, err := t.next.RoundTrip(of)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var names []string
	if json.NewDecoder(resp.Body).Decode(&names) != nil || len(names) == 0 {
		return ""
	}
	return ". The regions are: " + strings.Join(names, ", ")
}

type readCloser struct {
	io.Reader
	io.Closer
}
