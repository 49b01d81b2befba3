// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Nomad does not answer with the job's source. The job is registered without it, soon:
// what was decided grows old.
func TestRegisterDoesNotWaitForTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registered := false
		c, err := api.NewClient(&api.Config{Address: "http://nomad.test", HttpClient: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/submission") {
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			}
			registered = true
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = (&Client{api: c}).Register(t.Context(), orphanJob(JobKey{"default", "train"}, 7, true), 7)
		if took := time.Since(began); err != nil || !registered || took > sourceWithin {
			t.Errorf("registered: %v, after %v: %v", registered, took, err)
		}
	})
}
