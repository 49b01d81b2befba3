// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		begin := time.Now()
		_, err := Within(20*time.Second, "listing the GPUs", func() (Inventory, error) { <-release; return Inventory{}, nil })
		if !errors.Is(err, ErrNoAnswer) || time.Since(begin) != 20*time.Second {
			t.Errorf("a scan that hangs: %v after %s", err, time.Since(begin))
		}
		close(release)
		inv, err := Within(time.Second, "listing the GPUs", func() (Inventory, error) { return Inventory{DriverVersion: "580"}, nil })
		if err != nil || inv.DriverVersion != "580" {
			t.Errorf("a scan: %+v, %v", inv, err)
		}
	})
}
