// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nomad"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// profileLimit is the largest profile file that is read: that of a cluster of
// more than 50,000 GPUs is smaller.
const profileLimit = 32 << 20

// profileFile is a profile's file that is read again when it changes. Whoever
// looks at it may wait for ever, as for a network file system that hangs.
type profileFile struct {
	path    string
	read    func(path string) (*profile.Profile, error)
	mod     time.Time
	size    int64
	problem string // last one reported, "" when all is well
}

// look returns the profile if the file has another one than before, nil if not.
// problem is a new message for the log, "" for none: a file that is missing,
// half-written or bad leaves the previous profile in force.
func (f *profileFile) look() (p *profile.Profile, problem string) {
	st, err := os.Stat(f.path)
	if err == nil && st.ModTime().Equal(f.mod) && st.Size() == f.size {
		return nil, ""
	}
	if err == nil {
		f.mod, f.size = st.ModTime(), st.Size()
		p, err = f.read(f.path)
	}
	if err == nil {
		f.problem = ""
		return p, ""
	}
	if os.IsNotExist(err) {
		f.mod, f.size = time.Time{}, 0
	}
	msg := fmt.Sprintf("config key \"profile\": reading profile %q: %v", f.path, err)
	if msg == f.problem {
		return nil, ""
	}
	f.problem = msg
	return nil, msg
}

// ReadProfile reads a regular file of bounded size. A named pipe is not waited for.
func ReadProfile(path string) (*profile.Profile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if st.Size() > profileLimit {
		return nil, fmt.Errorf("larger than %d MiB", profileLimit>>20)
	}
	data, err := io.ReadAll(io.LimitReader(f, st.Size())) // it may grow meanwhile
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
	p, err := ReadProfile(filepath.Join(string(s.Dir), profileCopy))
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

// followFile sends every new profile of the configured file until ctx ends, and
// nil when there is none at the first look. Nothing waits for it: the file may
// hang.
func (s *stream) followFile(ctx context.Context) {
	file := profileFile{path: s.cfg.ProfilePath, read: s.p.readProfile}
	next := time.NewTimer(gpu.UntilTick(time.Now(), lookInterval))
	defer next.Stop()
	for first := true; ; first = false {
		p, problem := file.look()
		if problem != "" {
			s.p.log.Warn("profile is unusable, the previous one stays in force", "error", problem)
		}
		if p != nil || first {
			select {
			case s.profiles <- p:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-next.C:
			next.Reset(gpu.UntilTick(time.Now(), lookInterval))
		case <-ctx.Done():
			return
		}
	}
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

// adopt puts a profile in force; nil says that there is none yet.
func (s *stream) adopt(p *profile.Profile) {
	s.waits = false
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if p == nil || s.p.profile != nil && string(s.p.profile.Encode()) == string(p.Encode()) {
		return
	}
	s.p.profile = p
	s.p.log.Info("profile is in force", "version", p.Version)
	s.p.rate()
	if s.cfg.ProfileFromNomad == nil {
		return
	}
	if err := s.p.store.saveCopy(p); err != nil {
		s.p.log.Warn("profile cannot be stored: classes are unknown for a moment after a restart", "error", err)
	}
}
