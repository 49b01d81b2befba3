// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"io"
)

// Guard watches over a directory. When the owner closes the Guard, is killed or crashes, the Guard
// ends the processes that run in the directory, and removes the directory. Clusters of other
// schedulers use a Guard, because their processes, like Nomad's, outlive their parent.
type Guard struct{ guard *guard }

// NewGuard guards a directory. dir must be the directory's real path.
func NewGuard(dir string) (*Guard, error) {
	g, err := startGuard(dir, false)
	return &Guard{g}, err
}

// Mark returns the environment variable by which the guard finds processes that work outside dir.
func (g *Guard) Mark(dir string) string { return mark(dir) }

// Close ends the processes and removes the directory.
func (g *Guard) Close() error { return g.guard.clean() }

// FreePorts reserves ports that no program uses now. Until the caller closes kept, no other cluster
// uses these ports.
func FreePorts(n int) (numbers []int, kept io.Closer, err error) {
	var p ports
	for range n {
		port, k, err := freePort(firstPort, lastPort)
		if err != nil {
			return nil, nil, errors.Join(err, p.close())
		}
		numbers, p.kept = append(numbers, port), append(p.kept, k)
	}
	return numbers, closer(p.close), nil
}

type closer func() error

func (c closer) Close() error { return c() }
