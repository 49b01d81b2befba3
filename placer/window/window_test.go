// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package window

import (
	"strings"
	"testing"
	"time"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestAt(t *testing.T) {
	sundays := Window{Cron: "0 2 * * 0", TimeZone: "Europe/Berlin", Duration: 4 * time.Hour}
	once := Window{Start: at("2026-11-25T02:00:00Z"), Duration: time.Hour}
	for _, c := range []struct {
		name string
		w    Window
		now  string
		want string // when it begins, "" for never
	}{
		{"it comes", once, "2026-11-20T00:00:00Z", "2026-11-25T02:00:00Z"},
		{"it is on", once, "2026-11-25T02:59:59Z", "2026-11-25T02:00:00Z"},
		{"it is over", once, "2026-11-25T03:00:00Z", ""},
		{"on Sunday at two in Berlin", sundays, "2026-11-20T00:00:00Z", "2026-11-22T01:00:00Z"},
		{"in summer", sundays, "2026-07-01T00:00:00Z", "2026-07-05T00:00:00Z"},
		{"this Sunday's", sundays, "2026-11-22T04:59:59Z", "2026-11-22T01:00:00Z"},
		{"next Sunday's", sundays, "2026-11-22T05:00:00Z", "2026-11-29T01:00:00Z"},
	} {
		from, to, ok := c.w.At(at(c.now))
		if ok != (c.want != "") || ok && (!from.Equal(at(c.want)) || to.Sub(from) != c.w.Duration) {
			t.Errorf("%s: from %v to %v (%v), want %q", c.name, from, to, ok, c.want)
		}
	}
}

func TestHolds(t *testing.T) {
	n := Node{ID: "8f3a", Name: "gpu-12", Rack: "r1", Pool: "train", Datacenter: "dc1"}
	for _, c := range []struct {
		w    Window
		want bool
	}{
		{Window{}, true}, {Window{Nodes: []string{"gpu-1?"}}, true}, {Window{Nodes: []string{"8f3a"}}, true}, {Window{Nodes: []string{"gpu-2*"}}, false},
		{Window{Nodes: []string{"gpu-*"}, Racks: []string{"r2", "r1"}}, true}, {Window{Nodes: []string{"gpu-*"}, Racks: []string{"r2"}}, false},
		{Window{NodePools: []string{"train"}, Datacenters: []string{"dc2"}}, false}, {Window{NodePools: []string{"train"}, Datacenters: []string{"dc1"}}, true},
	} {
		if got := c.w.Holds(n); got != c.want {
			t.Errorf("%+v holds %+v: %v", c.w, n, got)
		}
	}
}

func TestCheck(t *testing.T) {
	start := at("2026-11-25T02:00:00Z")
	for want, w := range map[string]Window{
		"it takes either start or cron":          {Duration: time.Hour},
		"either start or cron":                   {Start: start, Cron: "* * * * *", Duration: time.Hour},
		"duration 0s is not above 0":             {Start: start},
		"time_zone goes with cron":               {Start: start, TimeZone: "UTC", Duration: 1},
		"time_zone: unknown time zone Mars/Base": {Cron: "* * * * *", TimeZone: "Mars/Base", Duration: 1},
		`cron "soon":`:                           {Cron: "soon", Duration: 1},
		`"[" is no pattern of nodes`:             {Start: start, Duration: 1, Nodes: []string{"["}},
		`for: "/x" is neither a namespace nor`:   {Start: start, Duration: 1, For: []string{"/x"}},
	} {
		w.Name = "w"
		if err := w.Check(); err == nil || !strings.HasPrefix(err.Error(), `window "w": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := (Window{Start: start, Duration: 1, For: []string{"ml", "ops/x*"}}).Check(); err != nil {
		t.Error(err)
	}
}
