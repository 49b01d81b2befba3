// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// noteTenant says what goes by the tenant of a waiting job.
func (s *Snapshot) noteTenant(e *Explanation, t *model.Tracked) {
	u := s.m.Queue.TenantUse(t.Key.Namespace, gang.QueueTime(s.m.Time))
	for _, said := range []string{quotaSentence(u), shareSentence(s.m.Cfg, u)} {
		if said != "" {
			e.Note = strings.TrimPrefix(e.Note+"; "+said, "; ")
		}
	}
}

// quotaSentence says how a tenant stands to its quota; "" where it has none.
func quotaSentence(u queue.TenantUse) string {
	if u.Quota == 0 && u.Limit == nil {
		return ""
	}
	said := fmt.Sprintf("tenant %s holds %d GPUs of its quota of %d", u.Tenant, u.GPUs, u.Quota)
	if b := u.Borrowed(); b > 0 {
		said = fmt.Sprintf("tenant %s holds %d GPUs, %d of them borrowed beyond its quota of %d", u.Tenant, u.GPUs, b, u.Quota)
	}
	if u.Limit != nil {
		said += fmt.Sprintf(" and may hold %d", *u.Limit)
	}
	return said
}

// shareSentence says what fair share goes by; "" where it is off.
func shareSentence(c model.Config, u queue.TenantUse) string {
	if !c.Queue.FairShare {
		return ""
	}
	const goes = "; where several tenants wait, the one with the least for its weight goes first"
	if c.Queue.HalfLife == 0 {
		return fmt.Sprintf("fair share: tenant %s has %d GPUs at work for its weight of %g", u.Tenant, u.GPUs, u.Weight) + goes
	}
	said := fmt.Sprintf("fair share: tenant %s has used %s GPU hours", u.Tenant, round3(u.GPUHours))
	if u.Times > 0 {
		said += fmt.Sprintf(", %s times its share", round3(u.Times))
	}
	return said + fmt.Sprintf(" (what was used %s ago counts half), and has %d GPUs at work", days(c.Queue.HalfLife), u.GPUs) + goes
}

// round3 is the number with three digits, or all of those before the point.
func round3(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", math.Max(0, x))
}

// days writes whole days as such.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "a day"
	case d > day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	return model.ShortDuration(d)
}

// Tenants are how the tenants stand whose jobs somebody may know of: some of theirs.
// Only namespaces that he sees are named.
func (s *Snapshot) Tenants(sees model.Sees) []queue.TenantUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	tenants := s.m.Queue.Tenants(gang.QueueTime(s.m.Time))
	for i := range tenants {
		unseen := func(namespace string) bool { return !sees(namespace) }
		tenants[i].Namespaces = slices.DeleteFunc(tenants[i].Namespaces, unseen)
	}
	return slices.DeleteFunc(tenants, func(u queue.TenantUse) bool { return len(u.Namespaces) == 0 })
}
