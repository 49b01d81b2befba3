// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/live"
)

// The text for a node that does not answer is the caller's: an error may contain Nomad's address.
func TestSilentNodeHidesItsAddress(t *testing.T) {
	nomad := httptest.NewServer(http.NotFoundHandler())
	address := nomad.URL
	nomad.Close()
	c, err := api.NewClient(&api.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	gpus := []palapi.GPU{{ID: "GPU-1", Node: "gpu-01", NodeID: "n1"}}
	if err := AddLive(t.Context(), &live.Reader{}, c, gpus, func(err error) string {
		if !strings.Contains(err.Error(), strings.TrimPrefix(address, "http://")) {
			t.Errorf("the error %v does not show what must be hidden", err)
		}
		return "no connection"
	}); err != nil {
		t.Fatal(err)
	}
	if got := gpus[0].NotLive; got != "node gpu-01 does not answer: no connection" {
		t.Errorf("not live: %s", got)
	}
}
