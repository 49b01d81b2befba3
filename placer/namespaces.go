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

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// namespacesEvery is the interval at which the placer looks for new namespaces.
const namespacesEvery = 10 * time.Second

// errNewNamespace ends a session because its event stream does not cover a new namespace.
var errNewNamespace = errors.New("there is a new namespace")

// followNamespaces waits until there is a namespace that is not in known, and then returns
// [errNewNamespace]. If ctx ends first, followNamespaces returns nil. When a client subscribes to
// the events of all namespaces, Nomad determines the set of namespaces once. Nomad sends no events
// about namespaces that are created later (seen on 1.11.3). If the namespaces could not be read,
// known is nil, and followNamespaces uses the first list that it can read.
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

// warnOfNamespaces warns once about namespaces that the configuration names but Nomad does not
// have. Nomad lists only namespaces in which the token has a right, and the namespace "default"
// always exists. So warnOfNamespaces ignores lists without "default".
func (p *Placer) warnOfNamespaces(known map[string]bool) {
	if !known[api.DefaultNamespace] {
		return
	}
	warnings := missingNamespaces(p.nomad.Namespace(), p.m.Cfg.Queue.Tenants, known)
	p.ofNamespaces = p.tell(p.ofNamespaces, warnings, func(w string) { p.log.Warn(w) }, "Nomad has all namespaces that the configuration names")
}

// missingNamespaces returns a warning for each namespace that the configuration names but that is
// not in known. own is the namespace of the placer's variables. Nomad accepts variables in a
// namespace that does not exist (seen on 1.11.3), but commands do not look for variables there. If
// the name of a tenant's namespace is misspelt, the jobs in the intended namespace have no quota.
func missingNamespaces(own string, tenants map[string]queue.Tenant, known map[string]bool) (out []string) {
	if !known[own] {
		out = append(out, fmt.Sprintf("the agent's data is in namespace %q (nomad { namespace }), which Nomad does not have; commands find the agent only with -pal-namespace", own))
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		for _, name := range tenants[tenant].Namespaces {
			if !known[name] && !strings.ContainsAny(name, "*?[") {
				out = append(out, fmt.Sprintf("tenant %q names namespace %q, which Nomad does not have", tenant, name))
			}
		}
	}
	return out
}
