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

// followNamespaces returns [errNewNamespace] when there is a namespace that is not known, and nil
// when ctx ends. Nomad fixes the set of "all namespaces" when a client subscribes to its events,
// and sends no events of later ones (seen on 1.11.3). If namespaces could not be read before, the
// first list counts as known.
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
			continue // jobs in new ones are found by the next full read
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
