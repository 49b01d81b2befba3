// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package window

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
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
		want string // when it begins, "" if never
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

// If occurrences overlap, the one that ends first counts, so that a moment of the window is never
// missed.
func TestTimesOverlap(t *testing.T) {
	nightly := Window{Name: "w", Cron: "0,30 2-4 * * *", Duration: 2 * time.Hour}
	for _, c := range []struct{ now, from string }{
		{"2026-11-20T00:00:00Z", "2026-11-20T02:00:00Z"}, {"2026-11-20T03:59:59Z", "2026-11-20T02:00:00Z"},
		{"2026-11-20T04:00:00Z", "2026-11-20T02:30:00Z"}, {"2026-11-20T06:30:00Z", "2026-11-21T02:00:00Z"},
	} {
		if from, to, ok := nightly.At(at(c.now)); !ok || !from.Equal(at(c.from)) || to.Sub(from) != nightly.Duration {
			t.Errorf("at %s: from %v to %v (%v), want %s", c.now, from, to, ok, c.from)
		}
	}
}

// When clocks change, a window is neither skipped nor repeated.
func TestClocksAreChanged(t *testing.T) {
	nightly := func(zone, cron string) Window {
		return Window{Cron: cron, TimeZone: zone, Duration: 90 * time.Minute}
	}
	for _, c := range []struct {
		name string
		w    Window
		days string // the start of the two days that are checked
		want []string
	}{
		{"forward in Berlin", nightly("Europe/Berlin", "30 2 * * *"), "2027-03-27T12:00:00Z", []string{"2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"}},
		{"forward in Berlin, on the hour", nightly("Europe/Berlin", "0 2 * * *"), "2027-03-27T12:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"}},
		{"forward in New York", nightly("America/New_York", "30 2 * * *"), "2027-03-13T12:00:00Z", []string{"2027-03-14T06:30:00Z", "2027-03-15T06:30:00Z"}},
		{"back in Berlin", nightly("Europe/Berlin", "30 2 * * *"), "2026-10-24T12:00:00Z", []string{"2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
		{"back in New York", nightly("America/New_York", "30 1 * * *"), "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"by half an hour on Lord Howe", nightly("Australia/Lord_Howe", "45 1 * * *"), "2027-04-03T00:00:00Z", []string{"2027-04-03T15:15:00Z", "2027-04-04T15:15:00Z"}},
	} {
		var got []string
		for began, now := at(c.days), at(c.days); now.Sub(began) < 48*time.Hour; now = now.Add(5 * time.Minute) {
			from, to, ok := c.w.At(now)
			if s := from.UTC().Format(time.RFC3339); ok && !from.After(began.Add(48*time.Hour)) && (len(got) == 0 || got[len(got)-1] != s) {
				got = append(got, s)
			}
			if !ok || !to.After(now) || to.Sub(from) != c.w.Duration {
				t.Fatalf("%s: at %v from %v to %v, %v", c.name, now, from, to, ok)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestHolds(t *testing.T) {
	n := pal.Node{ID: "8f3a", Name: "gpu-12", Rack: "r1", Datacenter: "dc1"}
	for _, c := range []struct {
		w    Window
		want bool
	}{
		{Window{}, true}, {Window{Nodes: []string{"gpu-1?"}}, true}, {Window{Nodes: []string{"8f3a"}}, true}, {Window{Nodes: []string{"gpu-2*"}}, false},
		{Window{Nodes: []string{"gpu-*"}, Racks: []string{"r2", "r1"}}, true}, {Window{Nodes: []string{"gpu-*"}, Racks: []string{"r2"}}, false},
		{Window{NodePools: []string{"train"}, Datacenters: []string{"dc2"}}, false}, {Window{NodePools: []string{"train"}, Datacenters: []string{"dc1"}}, true},
	} {
		if got := c.w.Holds(n, "train"); got != c.want {
			t.Errorf("%+v holds %+v: %v", c.w, n, got)
		}
	}
}

func TestCheck(t *testing.T) {
	start := at("2026-11-25T02:00:00Z")
	for want, w := range map[string]Window{
		"either start or cron is needed, not both": {Duration: time.Hour},
		"start or cron is needed, not both":        {Start: start, Cron: "* * * * *", Duration: time.Hour},
		"duration 0s is not above 0":               {Start: start},
		"time_zone can be set only with cron":      {Start: start, TimeZone: "UTC", Duration: 1},
		"time_zone: unknown time zone Mars/Base":   {Cron: "* * * * *", TimeZone: "Mars/Base", Duration: 1},
		`cron "soon":`:                             {Cron: "soon", Duration: 1},
		`"[" is not a pattern of nodes`:            {Start: start, Duration: 1, Nodes: []string{"["}},
		`for: "/x" is neither a namespace nor`:     {Start: start, Duration: 1, For: []string{"/x"}},
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
