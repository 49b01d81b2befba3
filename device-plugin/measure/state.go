// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

const (
	recordsFile   = "measurements.json" // name in the state directory
	recordsFormat = "nomad-pal/measurements/1"
)

// recordsForm is the format of the file of results.
type recordsForm struct {
	Format string            `json:"format"`
	GPUs   map[string]record `json:"gpus"`
}

// loadRecords reads the stored records; nil if the directory or the file is missing.
func loadRecords(d statedir.Dir) (map[string]record, error) {
	var f recordsForm
	if found, err := d.Read(recordsFile, &f); !found || err != nil {
		return nil, err
	}
	if f.Format != recordsFormat {
		return nil, fmt.Errorf("reading state %q: format is %q, want %q", recordsFile, f.Format, recordsFormat)
	}
	return f.GPUs, nil
}

// Troubles returns why GPUs are not measured or rated, by id. It reads the reasons from a state
// directory.
func Troubles(d statedir.Dir) (map[string]string, error) {
	records, err := loadRecords(d)
	out := map[string]string{}
	for id, r := range records {
		switch {
		case r.Corrupt:
			out[id] = "does not always compute the same result (silent data corruption)"
		case r.Problem != "":
			out[id] = fmt.Sprintf("could not be measured at %s: %s", r.Tried.Format(time.RFC3339), r.Problem)
		}
	}
	return out, err
}

// Accounts returns, by id, what to publish about measuring each GPU of the latest scan.
func (s *Scheduler) Accounts() map[string]attr.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]attr.Account{}
	for _, d := range s.inv.Devices {
		if d.MIG.Profile != "" {
			continue
		}
		r := s.records[d.ID]
		a := attr.Account{Problem: r.Problem, Provisional: r.Provisional, Uncapped: r.Uncapped}
		if !r.Tried.IsZero() {
			a.Last = r.Tried.UTC().Format(time.RFC3339)
		}
		switch err := Supported(d); {
		case s.cfg.Mode == Off:
			a.Unable = `measuring is off on its node (config measure { mode = "off" })`
		case err != nil:
			a.Unable = err.Error()
		case s.inUse[d.ID] != "":
			a.Waits = "in use: " + s.inUse[d.ID]
		case s.unproven != "" && !r.Asks && s.wants(time.Now(), s.cfg, d):
			a.Waits = s.unproven + "; " + UnprovenNext
		}
		out[d.ID] = a
	}
	return out
}
