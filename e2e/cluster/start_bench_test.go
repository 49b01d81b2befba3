// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// BenchmarkStart measures how long a cluster takes to become ready, and to end.
//
//	go test -run '^$' -bench Start -benchtime 3x ./e2e/cluster
func BenchmarkStart(b *testing.B) {
	for _, clients := range []int{0, 4, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			for b.Loop() {
				c, err := cluster.Start(b.Context(), cluster.Options{Clients: make([]cluster.Client, clients)})
				if errors.Is(err, cluster.ErrNoNomad) {
					b.Skip(err)
				}
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
