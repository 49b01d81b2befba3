// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"io"
)

// Guard ends what runs in a directory, and removes the directory, when its owner closes it, is
// killed or crashes. It is for clusters of other schedulers, whose processes outlive their parent
// as Nomad's do.
type Guard struct{ guard *guard }

// NewGuard guards a directory, given by its real path.
func NewGuard(dir string) (*Guard, error) {
	g, err := startGuard(dir, false)
	return &Guard{g}, err
}

// Mark is the environment variable that processes carry for the guard to know them, wherever they
// work.
func (g *Guard) Mark(dir string) string { return mark(dir) }

// Close ends the processes and removes the directory.
func (g *Guard) Close() error { return g.guard.clean() }

// FreePorts takes ports that nobody uses now. Other clusters leave them alone until they are
// closed.
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
