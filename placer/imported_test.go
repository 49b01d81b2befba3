// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// If somebody has overwritten the stored profile, or the imported measurements of one source, the
// other imports still count, and new ones are possible.
func TestUnreadableImports(t *testing.T) {
	t.Parallel()
	server := nomadtest.New(nomadtest.Options{Seed: 1})
	defer server.Close()
	c, err := nomad.NewClient(server.Config("c", ""), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"bad", "good"} {
		if err := store.In(c).Measurements(source).Write(t.Context(), []profile.Sample{{GPU: "G-" + source, App: "A", Model: "M", Time: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlacer(t)
	p.nomad, p.m.State = c, cluster.NewState()
	imported := func(want int) {
		t.Helper()
		if err := p.readImported(t.Context()); err != nil || len(p.m.Imported) != want {
			t.Errorf("%d measurements count, want %d: %v", len(p.m.Imported), want, err)
		}
	}
	imported(2)
	server.SetVariable("default", "nomad-pal/measurements/bad/0000", map[string]string{"csv": "?"})
	server.SetVariable("default", "nomad-pal/profile/0000", map[string]string{"data": "?"})
	imported(1)
	cal, problem, err := ReadCalibration(t.Context(), c, "new")
	if err != nil || len(cal.Imported) != 1 || cal.Profile != nil || !store.Unreadable(problem) {
		t.Fatalf("%+v, left out %v, %v", cal, problem, err)
	}
	if built, err := cal.Build(profile.DefaultOptions(), profile.Sample{GPU: "G-new", App: "A", Model: "M", Time: 1}); err != nil || len(built.GPUs) != 2 {
		t.Errorf("%+v, %v", built, err)
	}
	server.Fail("", "GET /v1/vars", nomadtest.Failed, -1)
	imported(1) // those that were read last
	if _, _, err := ReadCalibration(t.Context(), c, "new"); err == nil {
		t.Error("measurements that cannot be read count as missing")
	}
}
