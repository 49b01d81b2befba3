// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// If Nomad does not answer with the job's source, the job is soon registered without it, because a
// decision must not grow old.
func TestRegisterDoesNotWaitForTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registered := false
		c := clientOf(t, func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/submission") {
				return mute(r)
			}
			registered = true
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2}, nil
		})
		began := time.Now()
		_, err := c.Register(t.Context(), clustertest.SmallJob("train", 7, true), 7)
		if took := time.Since(began); err != nil || !registered || took > sourceWithin {
			t.Errorf("registered: %v, after %v: %v", registered, took, err)
		}
	})
}
