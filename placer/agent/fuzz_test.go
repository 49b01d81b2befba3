// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/placer"
)

// FuzzBodies checks that no body breaks the endpoints that accept one from anybody. The admission
// endpoint answers every body in the proxy's protocol.
func FuzzBodies(f *testing.F) {
	for _, job := range nulls {
		f.Add(job)
	}
	f.Add(gpuJob("default", "j", 2))
	f.Add(`{"ID":"j","Type":"service","Meta":{"pal_class":"A"},"TaskGroups":[{"Name":"g","Count":-1,"Constraints":[{}],"Tasks":[{"Name":"t","Resources":{"Devices":[{"Name":"gpu","Count":18446744073709551615,"Constraints":[{"LTarget":"${device.ids}","RTarget":"a,b","Operand":"set_contains_any"}]}]}}]}]}`)
	f.Add(`{"ID":"j","ParameterizedJob":{"Payload":"required"},"Periodic":{},"Multiregion":{"Regions":[{}]},"TaskGroups":[{"Name":"g","Tasks":[{"Resources":{"Devices":[{"Name":"nvidia/gpu"}]}}]}]}`)
	agent := New(hclog.NewNullLogger(), placer.Hooks{})
	file := fileAt("http://127.0.0.1:1")
	file.Admission = &Admission{}
	s, err := agent.newServer(file)
	if err != nil {
		f.Fatal(err)
	}
	handler := s.recovered(s.handler())
	f.Fuzz(func(t *testing.T, job string) {
		for _, c := range []struct{ path, key string }{{"/v1/plan", "Job"}, {"/v1/admission", "job"}} {
			method := http.MethodPut
			if c.path == "/v1/plan" {
				method = http.MethodPost
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(method, c.path, strings.NewReader(`{"`+c.key+`": `+job+`}`)))
			if agent.panics.Load() > 0 || w.Code == http.StatusInternalServerError {
				t.Fatalf("%s: status %d: %s", c.path, w.Code, w.Body)
			}
			if c.path != "/v1/admission" || w.Code != http.StatusOK {
				continue
			}
			var r Review
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || r.Patch == nil || r.Errors == nil || r.Warnings == nil {
				t.Fatalf("review %s: %v", w.Body, err)
			}
		}
	})
}
