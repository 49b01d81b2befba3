// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

// The test binary is four programs. Linked into a plugin directory as stubName, it serves a device
// plugin; linked as stubPlacerName, it is a placer. With ownerVariable set, it owns a cluster that
// it never closes. Otherwise it runs the tests.
const (
	stubName       = "stub-devices"
	stubPlacerName = "nomad-pal"
	ownerVariable  = "CLUSTER_TEST_OWNER"
)

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == stubName:
		device.Serve(&stub{}, hclog.NewNullLogger())
	case filepath.Base(os.Args[0]) == stubPlacerName:
		os.Exit(stubPlacer())
	case os.Getenv(ownerVariable) != "":
		os.Exit(ownForever())
	default:
		os.Exit(guard.Main(m))
	}
}

// stub is a device plugin; its configuration sets the number of "stub/box/plain" instances.
type stub struct{ count int }

func (s *stub) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type: base.PluginTypeDevice, PluginApiVersions: []string{device.ApiVersion010}, PluginVersion: "0.1.0", Name: stubName,
	}, nil
}

func (s *stub) ConfigSchema() (*hclspec.Spec, error) {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"count": hclspec.NewAttr("count", "number", true),
	}), nil
}

func (s *stub) SetConfig(c *base.Config) error {
	var config struct {
		Count int `codec:"count"`
	}
	if len(c.PluginConfig) > 0 {
		if err := base.MsgPackDecode(c.PluginConfig, &config); err != nil {
			return err
		}
	}
	s.count = config.Count
	return nil
}

func (s *stub) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	group := &device.DeviceGroup{Vendor: "stub", Type: "box", Name: "plain"}
	for i := range s.count {
		group.Devices = append(group.Devices, &device.Device{ID: fmt.Sprintf("box-%d", i), Healthy: true})
	}
	out := make(chan *device.FingerprintResponse, 1)
	out <- device.NewFingerprint(group)
	context.AfterFunc(ctx, func() { close(out) })
	return out, nil
}

func (s *stub) Reserve(ids []string) (*device.ContainerReservation, error) {
	return &device.ContainerReservation{Envs: map[string]string{"BOXES": fmt.Sprint(ids)}}, nil
}

func (s *stub) Stats(ctx context.Context, _ time.Duration) (<-chan *device.StatsResponse, error) {
	out := make(chan *device.StatsResponse)
	context.AfterFunc(ctx, func() { close(out) })
	return out, nil
}
