// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
)

// process is a running plugin, started as Nomad's client starts it.
type process struct {
	client *plugin.Client
	// Device and Base are the plugin's two interfaces.
	Device device.DevicePlugin
	Base   base.BasePlugin
}

// startPlugin runs the binary and shakes hands. env is added to this process's
// environment; the plugin's log goes to log.
func startPlugin(path string, env []string, log io.Writer) (*process, error) {
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), env...)
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: base.Handshake,
		Plugins: map[string]plugin.Plugin{
			base.PluginTypeBase:   &base.PluginBase{},
			base.PluginTypeDevice: &device.PluginDevice{},
		},
		Cmd:              cmd,
		SkipHostEnv:      true, // the host's variables would follow env and override it
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log, DisableTime: true}),
		SyncStdout:       io.Discard,
		SyncStderr:       io.Discard,
	})
	p, err := dispense(client)
	if err != nil {
		client.Kill()
		return nil, fmt.Errorf("starting plugin %q: %w", path, err)
	}
	return p, nil
}

func dispense(client *plugin.Client) (*process, error) {
	rpc, err := client.Client()
	if err != nil {
		return nil, err
	}
	rawBase, err := rpc.Dispense(base.PluginTypeBase)
	if err != nil {
		return nil, err
	}
	rawDevice, err := rpc.Dispense(base.PluginTypeDevice)
	if err != nil {
		return nil, err
	}
	p := &process{client: client}
	var ok bool
	if p.Base, ok = rawBase.(base.BasePlugin); !ok {
		return nil, fmt.Errorf("%T is not a base plugin", rawBase)
	}
	if p.Device, ok = rawDevice.(device.DevicePlugin); !ok {
		return nil, fmt.Errorf("%T is not a device plugin", rawDevice)
	}
	return p, nil
}

// Configure checks the text against the plugin's schema and sets it.
func (p *process) Configure(text string) error {
	schema, err := p.Base.ConfigSchema()
	if err != nil {
		return fmt.Errorf("reading the config schema: %w", err)
	}
	data, err := conformance.EncodeConfig(schema, text)
	if err != nil {
		return err
	}
	return p.Base.SetConfig(&base.Config{ApiVersion: device.ApiVersion010, PluginConfig: data})
}

// PID is the plugin's process id.
func (p *process) PID() int { return p.client.ReattachConfig().Pid }

// Exited reports whether the process has ended.
func (p *process) Exited() bool { return p.client.Exited() }

// Stop ends the plugin as Nomad does: gracefully, then by force.
func (p *process) Stop() { p.client.Kill() }
