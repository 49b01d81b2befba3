// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// profileFile is the file of a profile. The plugin reads the file again when it changes. Reading
// can block forever, for example if a network file system hangs.
type profileFile struct {
	path string
	mod  time.Time
	size int64
}

// look returns the profile if the file has changed, otherwise nil. A file that could not be opened
// or read is tried again each time, because a new owner or mode does not change the file's time.
func (f *profileFile) look() (p *profile.Profile, err error) {
	st, err := os.Stat(f.path)
	switch {
	case err == nil && st.ModTime().Equal(f.mod) && st.Size() == f.size:
		return nil, nil
	case err == nil:
		if p, err = ReadProfile(f.path); !errors.As(err, new(*fs.PathError)) {
			f.mod, f.size = st.ModTime(), st.Size()
		}
	}
	if os.IsNotExist(err) {
		f.mod, f.size = time.Time{}, 0
	}
	if err != nil {
		return nil, fmt.Errorf("config key \"profile\": reading profile %q: %w", f.path, err)
	}
	return p, nil
}

// ReadProfile reads a profile's file.
func ReadProfile(path string) (*profile.Profile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return profile.Parse(data)
}

// profileCopy is the name of the file in state_dir with the last profile from Nomad. With this
// copy, a restarted plugin publishes the same classes at once.
const profileCopy = "profile.json"

// loadCopy reads profileCopy; nil if the file does not exist.
func (s *store) loadCopy() (*profile.Profile, error) {
	var data json.RawMessage
	if found, err := s.Read(profileCopy, &data); !found || err != nil {
		return nil, err
	}
	return profile.Parse(data)
}

func (s *store) saveCopy(p *profile.Profile) error {
	return s.Replace(profileCopy, p.Encode())
}

// followFile follows the changes of the configured file. Nothing waits for followFile, because
// reading the file can block.
func (s *stream) followFile(ctx context.Context) {
	file := profileFile{path: s.cfg.ProfilePath}
	s.follow(ctx, func() time.Duration { return gpu.UntilTick(time.Now(), lookInterval) },
		"cannot use the profile; the previous profile stays in force", file.look)
}

// followNomad follows Nomad's Variables.
func (s *stream) followNomad(ctx context.Context) {
	source := nomad.Open(s.cfg.Nomad, s.cfg.ProfileFromNomad.Namespace)
	s.follow(ctx, func() time.Duration { return s.cfg.ProfileFromNomad.Period },
		"cannot read the profile from Nomad; the previous profile stays in force", func() (*profile.Profile, error) { return source.Read(ctx) })
}

// follow sends each new profile until ctx ends. If there is no profile at first, it sends nil. wait
// returns the time until the next attempt. If no valid new profile can be read, the previous
// profile stays in force, and follow logs the warning once for each reason.
func (s *stream) follow(ctx context.Context, wait func() time.Duration, warning string, look func() (*profile.Profile, error)) {
	problem := ""
	for first := true; ; first = false {
		p, err := look()
		switch {
		case err == nil:
			problem = ""
		case ctx.Err() == nil && err.Error() != problem:
			problem = err.Error()
			s.p.log.Warn(warning, "error", problem)
		}
		if p != nil || first {
			select {
			case s.profiles <- p:
			case <-ctx.Done():
				return
			}
		}
		next := time.NewTimer(wait())
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// adopt activates a profile; nil means that there is no profile yet.
func (s *stream) adopt(p *profile.Profile) {
	s.waits = false
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if p == nil || s.p.profiles.inForce != nil && string(s.p.profiles.inForce.Encode()) == string(p.Encode()) {
		return
	}
	s.p.profiles.inForce = p
	s.p.log.Info("profile is in force", "version", p.Version)
	s.p.rate()
	if s.cfg.ProfileFromNomad == nil {
		return
	}
	if err := s.p.store.saveCopy(p); err != nil {
		s.p.log.Warn("cannot store the profile, so classes are unknown for a moment after a restart", "error", err)
	}
}

// rating is what the plugin knows about the speed of this node's GPUs.
type rating struct {
	reference string
	version   int                                       // version of the profile; 0 without one
	entries   map[string]map[pal.AppClass]profile.Entry // profile entries by GPU
}

// rate scores the devices by the profile. Without a profile, rate scores the devices against the
// median of this node's GPUs with the same key and model.
func rate(devices []gpu.Device, p *profile.Profile, prev *profile.Profile) (rating, *profile.Profile, error) {
	r := rating{reference: attr.ReferenceNone, entries: map[string]map[pal.AppClass]profile.Entry{}}
	var samples []profile.Sample
	for _, d := range devices {
		if len(d.Measured.Times) > 0 {
			samples = append(samples, profile.SamplesOf(d.Model, []attr.Measurement{measurementOf(d)})...)
		}
	}
	var err error
	switch {
	case p != nil:
		r.reference, r.version = attr.ReferenceProfile, p.Version
	case len(samples) > 0:
		if p, err = profile.Build(samples, profile.DefaultOptions(), prev); err != nil {
			return r, prev, fmt.Errorf("calibrating this node's GPUs: %w", err)
		}
		r.reference, prev = attr.ReferenceNode, p
	default:
		return r, prev, nil
	}
	for _, d := range devices {
		r.entries[d.ID] = entriesOf(d, p)
	}
	return r, prev, nil
}

// measurementOf returns a device's measured times.
func measurementOf(d gpu.Device) attr.Measurement {
	return attr.Measurement{GPU: d.ID, Key: d.Measured.Key, Times: d.Measured.Times}
}

// entriesOf returns a GPU's entries in the profile. A measured time that the profile can rate
// replaces the entry of the profile, because the measured time is newer.
func entriesOf(d gpu.Device, p *profile.Profile) map[pal.AppClass]profile.Entry {
	scored := p.Score(d.Model, measurementOf(d))
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

// class returns the variability class of a GPU. An unmeasured or degraded GPU is in the last class,
// which is the slowest.
func (r rating) class(id string, c pal.AppClass, degraded bool) int {
	e, ok := r.entries[id][c]
	if !ok || e.Unmeasured || degraded {
		return profile.MaxClass
	}
	return e.Class
}

// scores returns the PM scores in the published form.
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
