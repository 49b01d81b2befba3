// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// If the region does not exist, the error says which setting names it, and which regions exist.
// Other errors of Nomad stay as they are.
func TestNamesRegions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ region, regions, want string }{
		{"mars", `["east","global"]`, `Nomad has no region "mars" (NOMAD_REGION). The regions are: east, global`},
		{"mars", `[]`, `Nomad has no region "mars" (NOMAD_REGION)`},
		{"east", `["east","global"]`, `No cluster leader`},
	} {
		server := roundTrip(func(r *http.Request) (*http.Response, error) {
			status, body := http.StatusOK, c.regions
			switch {
			case r.URL.Path == "/v1/regions" && r.URL.RawQuery == "":
			case r.URL.Query().Get("region") == "mars":
				status, body = http.StatusInternalServerError, "No path to region\n"
			default:
				status, body = http.StatusInternalServerError, "No cluster leader"
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
		client, err := NewClient(&api.Config{Address: "http://nomad.test", Region: c.region, HttpClient: &http.Client{Transport: server}}, "", NamesRegions("NOMAD_REGION"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Job(t.Context(), cluster.JobKey{Namespace: "default", ID: "j"})
		if want := fmt.Sprintf(`reading job "j": Unexpected response code: 500 (%s)`, c.want); err == nil || strings.ReplaceAll(err.Error(), "\n", "") != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
