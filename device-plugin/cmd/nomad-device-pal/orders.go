// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/statedir"
)

func clearCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Mark a GPU healthy again after a fatal Xid",
		help: `Usage: nomad-device-pal clear [-state-dir=DIR] GPU

  A fatal Xid keeps a GPU unhealthy until the driver reports that the GPU recovered, the
  driver is reloaded, the machine is rebooted, or you run this command. Run clear also if
  a GPU or its NVLinks were removed on purpose. The running plugin reads the order within
  a second. GPU is a UUID or its beginning, nvidia-smi's number, or a PCI address.

  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int { return clearFaults(ui, args) },
	}
}

// clearFaults orders the running plugin to forget the faults of a GPU.
func clearFaults(ui cli.Ui, args []string) int {
	fs := flag.NewFlagSet("clear", flag.ContinueOnError)
	dir, known, code, ok := orderFlags(ui, fs, args, 1)
	if !ok {
		return code
	}
	id, err := among(known, fs.Arg(0))
	if err == nil {
		err = statedir.Dir(dir).OrderClear(id)
	}
	if err != nil {
		return fail(ui, "clear", err)
	}
	ui.Output(fmt.Sprintf("The plugin will forget the faults of %s.", id))
	return 0
}

// among returns the id of the known GPU or MIG instance that a word names: by UUID or its
// beginning, by nvidia-smi's number or by PCI address.
func among(known []gpu.Device, word string) (string, error) {
	var all, found []string
	for _, d := range known {
		for _, id := range []string{d.ID, d.Physical()} {
			all = append(all, id)
			if id == word {
				return id, nil
			}
			if word != "" && strings.HasPrefix(id, word) {
				found = append(found, id)
			}
		}
		if d.Slot().Named(word) {
			found = append(found, d.Physical())
		}
	}
	slices.Sort(all)
	slices.Sort(found)
	all, found = slices.Compact(all), slices.Compact(found)
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%q is not a GPU of this node (its GPUs: %s)", word, strings.Join(all, ", "))
	case len(found) > 1:
		return "", fmt.Errorf("%q matches %d GPUs of this node: type a longer prefix (%s)", word, len(found), strings.Join(found, ", "))
	}
	return found[0], nil
}

func releaseCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Have the running plugin release the driver, to reset a GPU or switch MIG",
		help: `Usage: nomad-device-pal release [-for=DURATION] [-state-dir=DIR]

  While a program uses the driver, nobody can reset a GPU or switch MIG mode. On this
  order the running plugin reports all GPUs of the node as unhealthy ("released"), ends
  measurements and closes NVML. Running tasks continue; Nomad starts no new ones on the
  GPUs. The command returns when the driver is closed, usually within seconds. The
  plugin opens the driver again when the time is over or after resume, even if the
  plugin restarts in between.

  -for=DURATION    How long, at most 24h (default 5m).
  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int { return runRelease(ui, args) },
	}
}

func resumeCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Have the running plugin use the driver again after release",
		help: `Usage: nomad-device-pal resume [-state-dir=DIR]

  Ends a release early. The running plugin reads the order
  within a second, and scans the GPUs.

  -state-dir=DIR   The plugin's state_dir (default /var/lib/nomad-device-pal).
`,
		run: func(args []string) int {
			fs := flag.NewFlagSet("resume", flag.ContinueOnError)
			dir, _, code, ok := orderFlags(ui, fs, args, 0)
			if !ok {
				return code
			}
			if err := deviceplugin.Release(dir, time.Now()); err != nil {
				return fail(ui, "resume", err)
			}
			ui.Output("The plugin uses the driver again.")
			return 0
		},
	}
}

// orderFlags parses the flags of an order. uuids is the number of GPUs in the arguments: 1, or 0 if
// the order concerns the whole node. known are the plugin's GPUs. If ok is false, the command must
// exit with the returned code.
func orderFlags(ui cli.Ui, fs *flag.FlagSet, args []string, uuids int) (dir string, known []gpu.Device, code int, ok bool) {
	fs.StringVar(&dir, "state-dir", deviceplugin.DefaultStateDir, "")
	if code, ok := parseFlags(ui, fs, args); !ok {
		return "", nil, code, false
	}
	wrong := ""
	switch {
	case uuids == 1 && fs.NArg() != 1:
		wrong = "one GPU is needed"
	case fs.NArg() > uuids:
		wrong = fmt.Sprintf("unexpected argument %q: the command acts on all GPUs of the node", fs.Arg(0))
	case dir == "":
		wrong = "-state-dir is empty: commands reach the plugin through its state directory"
	}
	if wrong != "" {
		ui.Error(fs.Name() + ": " + wrong)
		return "", nil, 2, false
	}
	known, err := deviceplugin.StoredDevices(dir)
	if err != nil {
		return "", nil, fail(ui, fs.Name(), err), false
	}
	return dir, known, 0, true
}

// releaseWithin is the maximum time for the plugin to release the driver. The plugin first waits
// for a running scan to end, and then ends measurements.
const releaseWithin = time.Minute

// moment is the format of displayed times, with the time zone.
const moment = time.DateTime + " MST"

func runRelease(ui cli.Ui, args []string) int {
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	span := fs.Duration("for", 5*time.Minute, "")
	dir, _, code, ok := orderFlags(ui, fs, args, 0)
	if !ok {
		return code
	}
	if *span <= 0 || *span > deviceplugin.LongestRelease {
		ui.Error(fmt.Sprintf("release: -for %s is not between 0 and %s", *span, deviceplugin.LongestRelease))
		return 2
	}
	until := time.Now().Add(*span)
	if err := deviceplugin.Release(dir, until); err != nil {
		return fail(ui, "release", err)
	}
	gone, err := awaitRelease(dir, min(*span, releaseWithin))
	if err == nil && !gone {
		err = fmt.Errorf("the plugin has not released the driver within %s, so this command withdraws the order: check that the plugin runs with state_dir %s, and see its log", min(*span, releaseWithin), dir)
	}
	if err != nil {
		return fail(ui, "release", errors.Join(err, deviceplugin.Release(dir, time.Now())))
	}
	ui.Output("The plugin has released the driver until " + until.Format(moment) + ". To end the release: " + deviceplugin.Order(dir, "resume"))
	return 0
}

// awaitRelease waits for the plugin to release the driver.
func awaitRelease(dir string, limit time.Duration) (gone bool, err error) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if _, gone, err = deviceplugin.ReleasedUntil(dir, time.Now()); gone || err != nil {
			break
		}
	}
	return gone, err
}
