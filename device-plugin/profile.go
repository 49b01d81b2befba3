// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

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
	p, err := readProfile(f.path)
	if err != nil {
		return false, f.report(err)
	}
	f.problem = ""
	return f.use(p), ""
}

// use puts p in force; it says whether that is another profile.
func (f *profileFile) use(p *profile.Profile) bool {
	changed := f.current == nil || string(f.current.Encode()) != string(p.Encode())
	f.current = p
	return changed
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

func readProfile(path string) (*profile.Profile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return profile.Parse(data)
}

// profileCopy is the file in state_dir with the last profile from Nomad: with
// it a plugin that starts again publishes the same classes at once.
const profileCopy = "profile.json"

// loadCopy reads the copy; nil when there is none.
func (s *store) loadCopy() (*profile.Profile, error) {
	if s.Dir == "" {
		return nil, nil
	}
	p, err := readProfile(filepath.Join(string(s.Dir), profileCopy))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the stored profile: %w", err)
	}
	return p, nil
}

func (s *store) saveCopy(p *profile.Profile) error {
	return s.Replace(profileCopy, p.Encode())
}

// followNomad sends every new profile from Nomad's Variables until ctx ends.
func (s *stream) followNomad(ctx context.Context) {
	source, err := nomad.Open(s.cfg.ProfileFromNomad.Options)
	if err != nil {
		s.p.log.Warn("config key \"profile_from_nomad\": no profile can be read", "error", err)
		return
	}
	next := time.NewTimer(0)
	defer next.Stop()
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(s.cfg.ProfileFromNomad.Period)
		}
		p, err := source.Read(ctx)
		if err != nil {
			if ctx.Err() == nil && err.Error() != problem {
				problem = err.Error()
				s.p.log.Warn("no profile from Nomad, what was known before stays in force", "error", problem)
			}
			continue
		}
		problem = ""
		if p == nil {
			continue
		}
		select {
		case s.profiles <- p:
		case <-ctx.Done():
			return
		}
	}
}

// adopt puts a profile from Nomad in force.
func (s *stream) adopt(p *profile.Profile) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if !s.p.profile.use(p) {
		return
	}
	s.p.log.Info("profile is in force", "version", p.Version)
	s.p.rate()
	if err := s.p.store.saveCopy(p); err != nil {
		s.p.log.Warn("profile cannot be stored: classes are unknown for a moment after a restart", "error", err)
	}
}
