// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/nomad/api"
)

// A job that Nomad rejects as invalid is the author's fault. Nomad answers 500 both for that and
// for its own faults.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"1 error occurred:\n\t* Missing job task groups\n\n": "Missing job task groups",
		"2 errors occurred:\n\t* a\n\t* b\n\n":               "a; b",
		"No cluster leader":                                  "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, body, http.StatusInternalServerError)
		}))
		defer s.Close()
		c, err := api.NewClient(&api.Config{Address: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		id := "x"
		_, _, err = c.Jobs().PlanOpts(&api.Job{ID: &id}, nil, nil)
		if why, ok := Invalid(fmt.Errorf("planning: %w", err)); ok != (want != "") || why != want {
			t.Errorf("%q: %q, %t of %v", body, why, ok, err)
		}
	}
}
