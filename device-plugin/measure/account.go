// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Accounts returns, by id, what to publish about measuring each GPU of the latest scan.
func (s *Scheduler) Accounts() map[string]attr.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]attr.Account{}
	for _, d := range s.inv.Devices {
		if d.MIGProfile != "" {
			continue
		}
		r := s.records[d.ID]
		a := attr.Account{Problem: r.LastProblem, Provisional: r.Provisional, Uncapped: r.Uncapped}
		if !r.Last.IsZero() {
			a.Last = r.Last.UTC().Format(time.RFC3339)
		}
		switch err := Supported(d); {
		case s.cfg.Mode == Off:
			a.Unable = `measuring is off on its node (config measure { mode = "off" })`
		case err != nil:
			a.Unable = err.Error()
		case s.inUse[d.ID] != "":
			a.Waits = "in use: " + s.inUse[d.ID]
		case r.Downs >= mostDowns && !r.Asks:
			a.Waits = fmt.Sprintf("measuring this GPU was cut short %d times in a row, because the plugin or the machine went down each time", r.Downs)
		case s.unproven != "" && !r.Asks && s.wants(time.Now(), s.cfg, d):
			a.Waits = s.unproven + "; " + UnprovenNext
		}
		out[d.ID] = a
	}
	return out
}
