// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"errors"
	"time"
)

// namespacesEvery is how often the placer looks for new namespaces.
const namespacesEvery = 10 * time.Second

// errNewNamespace ends a session whose event stream does not cover a new namespace.
var errNewNamespace = errors.New("there is a new namespace")

// followNamespaces returns [errNewNamespace] when there is a namespace that is not in known, and
// nil when ctx ends. When a client subscribes to the events of all namespaces, Nomad fixes the set
// of namespaces. Nomad sends no events of namespaces that are created later (seen on 1.11.3). If
// known is nil because the namespaces could not be read, the first list of namespaces that can be
// read takes the place of known.
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
