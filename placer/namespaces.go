// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// namespacesEvery is how often the placer looks for new namespaces.
const namespacesEvery = 10 * time.Second

// errNewNamespace ends a session whose event stream does not cover a new namespace.
var errNewNamespace = errors.New("there is a new namespace")

// followNamespaces returns [errNewNamespace] when there is a namespace that is not in known, and
// nil when ctx ends. When a client subscribes to the events of all namespaces, Nomad fixes the set
// of namespaces. It sends no events of namespaces that are created later (seen on 1.11.3). If known
// is nil because the namespaces could not be read, the first list that can be read takes its place.
func (p *core) followNamespaces(ctx context.Context, known map[string]bool) error {
	every := time.NewTicker(namespacesEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		now, err := p.nomad.Namespaces(ctx)
		if err != nil {
			continue // the next full read finds jobs in new namespaces
		}
		for name := range now {
			if known != nil && !known[name] {
				return errNewNamespace
			}
		}
		if known == nil {
			known = now
		}
	}
}

// warnOfTenants warns once about namespaces that tenants name and Nomad does not have: a misspelt
// namespace would leave the jobs of the intended one without a quota. known is nil if the namespaces
// could not be read.
func (p *Placer) warnOfTenants(known map[string]bool) {
	if known == nil {
		return
	}
	p.ofTenants = p.tell(p.ofTenants, missingNamespaces(p.m.Cfg.Queue.Tenants, known), func(w string) { p.log.Warn(w) }, "Nomad has all namespaces that tenants name")
}

// missingNamespaces returns a warning for each name of a namespace that is not in known.
func missingNamespaces(tenants map[string]queue.Tenant, known map[string]bool) (out []string) {
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		for _, name := range tenants[tenant].Namespaces {
			if !known[name] && !strings.ContainsAny(name, "*?[") {
				out = append(out, fmt.Sprintf("tenant %q names namespace %q, which Nomad does not have", tenant, name))
			}
		}
	}
	return out
}
