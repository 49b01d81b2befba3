// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// slowDriver takes a second for a reading.
type slowDriver struct{ stage }

func (d *slowDriver) Sample(ids []string) map[string]gpu.Sample {
	time.Sleep(time.Second) // of synctest's clock
	return d.stage.Sample(ids)
}

// Whoever asks while a reading runs gets it, and one of the devices that it was
// not about; a driver that is slower than the caller waits gives what there is.
func TestReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(&slowDriver{})
		got := make(chan []string, 3)
		ask := func(wait time.Duration, ids ...string) {
			readings, _ := s.sample(ids, time.Minute, wait)
			got <- slices.Sorted(maps.Keys(readings))
		}
		go ask(time.Hour, "a")
		synctest.Wait()
		go ask(time.Hour, "a", "b")
		synctest.Wait()
		ask(500*time.Millisecond, "c")
		for _, want := range [][]string{nil, {"a"}, {"a", "b"}} {
			if ids := <-got; !slices.Equal(ids, want) {
				t.Errorf("got readings of %v, want %v", ids, want)
			}
		}
	})
}
