// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"fmt"
	"os"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// What PM scores are relative to; see attr.Reference.
const (
	referenceProfile = "profile"
	referenceNode    = "node"
	referenceNone    = "none"
)

// rating is what is known of the speed of this node's GPUs.
type rating struct {
	reference string
	version   int                                       // of the profile; 0 without one
	entries   map[string]map[pal.AppClass]profile.Entry // by GPU
	measured  []attr.Measurement                        // raw times, by GPU id
}

// rate scores the devices by the profile, or, without one, against the median
// of this node's own GPUs of the same key and model.
func rate(devices []gpu.Device, p *profile.Profile, prev *profile.Profile) (rating, *profile.Profile, error) {
	r := rating{reference: referenceNone, entries: map[string]map[pal.AppClass]profile.Entry{}}
	var samples []profile.Sample
	for i := range devices {
		d := &devices[i]
		if len(d.Times) == 0 {
			continue
		}
		m := attr.Measurement{GPU: d.ID, Key: d.Key, Times: d.Times}
		r.measured = append(r.measured, m)
		samples = append(samples, profile.SamplesOf(d.Model, []attr.Measurement{m})...)
	}
	var err error
	switch {
	case p != nil:
		r.reference, r.version = referenceProfile, p.Version
	case len(samples) > 0:
		if p, err = profile.Build(samples, profile.DefaultOptions(), prev); err != nil {
			return r, prev, fmt.Errorf("rating this node's GPUs: %w", err)
		}
		r.reference, prev = referenceNode, p
	default:
		return r, prev, nil
	}
	for i := range devices {
		r.entries[devices[i].ID] = entriesOf(&devices[i], p)
	}
	return r, prev, nil
}

// entriesOf prefers a time that the profile can rate to what the profile holds:
// it is the newer one.
func entriesOf(d *gpu.Device, p *profile.Profile) map[pal.AppClass]profile.Entry {
	scored := p.Score(d.Model, attr.Measurement{GPU: d.ID, Key: d.Key, Times: d.Times})
	out := make(map[pal.AppClass]profile.Entry, pal.NumClasses)
	for _, c := range pal.AppClasses() {
		if e, ok := scored[c]; ok && !e.Unmeasured {
			out[c] = e
			continue
		}
		out[c], _ = p.Lookup(d.ID, c)
	}
	return out
}

// class is the variability class of a GPU; a GPU that nothing is known of, or
// that is degraded, is in the last one.
func (r rating) class(id string, c pal.AppClass, degraded bool) int {
	e, ok := r.entries[id][c]
	if !ok || e.Unmeasured || degraded {
		return profile.MaxClass
	}
	return e.Class
}

// scores are the PM scores in the published form.
func (r rating) scores(ids []string) []attr.Measurement {
	var out []attr.Measurement
	for _, id := range ids {
		m := attr.Measurement{GPU: id, Times: map[pal.AppClass]float64{}}
		for c, e := range r.entries[id] {
			if !e.Unmeasured {
				m.Times[c] = float64(e.Score)
			}
		}
		if len(m.Times) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// profileFile is a profile that is read again when its file changes. A file
// that is missing, half-written or bad leaves the previous profile in force.
type profileFile struct {
	path    string
	mod     time.Time
	size    int64
	current *profile.Profile
	problem string // last one reported, "" when all is well
}

// refresh looks at the file. changed says that another profile is in force;
// problem is a new message for the log, "" for none.
func (f *profileFile) refresh() (changed bool, problem string) {
	if f.path == "" {
		return false, ""
	}
	st, err := os.Stat(f.path)
	if err != nil {
		f.mod, f.size = time.Time{}, 0
		return false, f.report(err)
	}
	if st.ModTime().Equal(f.mod) && st.Size() == f.size {
		return false, ""
	}
	f.mod, f.size = st.ModTime(), st.Size()
	data, err := os.ReadFile(f.path)
	if err != nil {
		return false, f.report(err)
	}
	p, err := profile.Parse(data)
	if err != nil {
		return false, f.report(err)
	}
	f.problem = ""
	changed = f.current == nil || string(f.current.Encode()) != string(p.Encode())
	f.current = p
	return changed, ""
}

// report returns the message for err unless it is the one reported last.
func (f *profileFile) report(err error) string {
	msg := fmt.Sprintf("config key \"profile\": reading profile %q: %v", f.path, err)
	if msg == f.problem {
		return ""
	}
	f.problem = msg
	return msg
}
