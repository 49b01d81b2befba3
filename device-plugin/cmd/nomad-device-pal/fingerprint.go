// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/cli"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// source holds the flags that select where the GPUs come from.
type source struct {
	inventory, library string
	stateDir           string // the running plugin's state_dir
	ignored            []string
	json               bool
}

const sourceHelp = `
  -inventory=FILE  Take the GPUs from an inventory file instead of NVML.
  -nvml=LIBRARY    NVML library (default libnvidia-ml.so.1).
  -json            Print JSON.
`

// stateDirHelp documents -state-dir for a command that opens the driver itself.
const stateDirHelp = `  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal). If the
                   plugin with this state_dir has released the driver, this command
                   does not open the driver.
`

// parse reads the flags. If ok is false, the command must exit with the returned code.
func (s *source) parse(ui cli.Ui, name string, args []string, more func(*flag.FlagSet)) (code int, ok bool) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.StringVar(&s.inventory, "inventory", "", "")
	fs.StringVar(&s.library, "nvml", "", "")
	fs.BoolVar(&s.json, "json", false, "")
	if more != nil {
		more(fs)
	}
	if code, ok := parseFlags(ui, fs, args); !ok {
		return code, false
	}
	if fs.NArg() > 0 {
		ui.Error(fmt.Sprintf("%s: unexpected argument %q", name, fs.Arg(0)))
		return 2, false
	}
	return 0, true
}

func (s *source) stateDirFlag(fs *flag.FlagSet) {
	fs.StringVar(&s.stateDir, "state-dir", deviceplugin.DefaultStateDir, "")
}

// parseFlags parses the flags of a command. If ok is false, the command must exit with the returned
// code.
func parseFlags(ui cli.Ui, fs *flag.FlagSet, args []string) (code int, ok bool) {
	fs.SetOutput(io.Discard)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return cli.RunResultHelp, false
	case err != nil:
		ui.Error(fs.Name() + ": " + err.Error() + nearest.Option(fs, err))
		return 2, false
	}
	return 0, true
}

// config returns the plugin configuration that the flags describe.
func (s *source) config() deviceplugin.Config {
	cfg := deviceplugin.DefaultConfig()
	cfg.NVMLLibrary, cfg.Watchdog = cmp.Or(s.library, cfg.NVMLLibrary), 0
	cfg.StateDir = "" // the state directory is the running plugin's
	cfg.IgnoredGPUIDs = s.ignored
	if s.inventory != "" {
		cfg.Backend, cfg.Inventory = "emulated", s.inventory
	}
	return cfg
}

// quiet returns a logger that prints only warnings and errors.
func quiet() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "nomad-device-pal", Level: hclog.Warn, Output: os.Stderr, DisableTime: true})
}

// released returns an error if the operator has released the driver. A command that opened the
// driver would block a GPU reset, without telling the operator.
func released(stateDir string) error {
	until, _, err := deviceplugin.ReleasedUntil(stateDir, time.Now())
	if err != nil || until.IsZero() {
		return nil // a user who cannot read the plugin's orders cannot have given them
	}
	return fmt.Errorf("the driver is released until %s, but this command needs the driver. To end the release: %s", until.Local().Format(moment), deviceplugin.Order(stateDir, "resume"))
}

// plugin starts the plugin inside this process.
func (s *source) plugin() *deviceplugin.Plugin {
	p := deviceplugin.New(deviceplugin.Options{Log: quiet(), Open: open, Exit: func(int) {}, Patience: 2 * gpu.DriverWithin})
	p.Configure(s.config())
	return p
}

func fingerprintCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Print what the plugin publishes about this node's GPUs",
		help:     "Usage: nomad-device-pal fingerprint [options]\n\n  Prints the device groups, instances and attributes that the plugin would publish.\n" + sourceHelp + stateDirHelp,
		run: func(args []string) int {
			var s source
			if code, ok := s.parse(ui, "fingerprint", args, s.stateDirFlag); !ok {
				return code
			}
			if err := released(s.stateDir); err != nil && s.inventory == "" {
				return fail(ui, "fingerprint", err)
			}
			groups, err := firstFingerprint(s.plugin())
			if err != nil {
				return fail(ui, "fingerprint", err)
			}
			return printGroups(ui, groups, s.json)
		},
	}
}

// firstFingerprint returns the plugin's first message.
func firstFingerprint(p *deviceplugin.Plugin) ([]*device.DeviceGroup, error) {
	ctx, cancel := context.WithTimeout(context.Background(), gpu.DriverWithin)
	defer cancel()
	stream, err := p.Fingerprint(ctx)
	if err != nil {
		return nil, err
	}
	msg, ok := <-stream
	if !ok {
		return nil, fmt.Errorf("%w within %s", gpu.ErrNoAnswer, gpu.DriverWithin)
	}
	return msg.Devices, nil
}

func printGroups(ui cli.Ui, groups []*device.DeviceGroup, asJSON bool) int {
	if asJSON {
		return printJSON(ui, "fingerprint", groups)
	}
	if len(groups) == 0 {
		ui.Output("no GPUs")
		return 1
	}
	for _, g := range groups {
		ui.Output(fmt.Sprintf("%s/%s/%s", g.Vendor, g.Type, g.Name))
		indexes := indexesOf(g)
		rows := []string{"  Index | Instance | Bus id | Health"}
		for _, d := range g.Devices {
			health := "healthy"
			if reasons, ok := strings.CutPrefix(d.HealthDesc, attr.DegradedPrefix); ok {
				health = "healthy, degraded: " + reasons
			}
			if !d.Healthy {
				health = "unhealthy: " + d.HealthDesc
			}
			index := "-"
			if n, ok := indexes[attr.GPUOf(d.ID)]; ok {
				index = strconv.Itoa(n)
			}
			rows = append(rows, fmt.Sprintf("  %s | %s | %s | %s", index, d.ID, d.HwLocality.PciBusID, health))
		}
		ui.Output(columns(rows))
		rows = []string{"  Attribute | Value"}
		for _, name := range slices.Sorted(maps.Keys(g.Attributes)) {
			rows = append(rows, fmt.Sprintf("  %s | %s", name, attributeText(g.Attributes[name])))
		}
		ui.Output("\n" + columns(rows) + "\n")
	}
	return 0
}

// indexesOf returns nvidia-smi's numbers of a group's GPUs.
func indexesOf(g *device.DeviceGroup) map[string]int {
	a := g.Attributes[attr.Indexes]
	if a != nil && a.String != nil {
		return attr.ParseIndexes(*a.String)
	}
	return nil
}

// attributeText formats an attribute for display.
func attributeText(a *structs.Attribute) string {
	text := ""
	switch {
	case a.String != nil:
		return *a.String
	case a.Int != nil:
		text = fmt.Sprint(*a.Int)
	case a.Float != nil:
		text = fmt.Sprint(*a.Float)
	case a.Bool != nil:
		text = fmt.Sprint(*a.Bool)
	}
	return strings.TrimSuffix(text+" "+a.Unit, " ")
}
