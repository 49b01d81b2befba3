// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

var helpCancel = help("cancel [options] <job>... | -mine", `
Stops jobs. Unlike "nomad job stop", it also stops all runs of a parameterized or
periodic job (an array). A stopped job loses its place in the queue. Stopping a
failed job removes it from the lists. Without an agent, use nomad job stop.

Cancel Options:

  -mine                    Stop all your jobs with GPUs in the namespace. nomad-pal status
                           -mine -namespace=<namespace> lists them.
`, examples(
	"Stop an array, with all of its runs:", "nomad-pal cancel array",
	"Stop all of your jobs:", "nomad-pal cancel -mine",
), exitCodes, outputOptions, generalOptions)

func runCancel(b *base, args []string) int {
	fs := b.flags("cancel")
	mine := fs.Bool("mine", false, "")
	ids, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	switch {
	case *mine && len(ids) > 0:
		return b.fail(fmt.Errorf("stopping jobs: -mine cannot be combined with the names of jobs"))
	case *mine && b.namespace == "*":
		return b.fail(fmt.Errorf("stopping jobs: -mine works in a single namespace, not in namespace *"))
	case !*mine && len(ids) == 0:
		return b.fail(fmt.Errorf("stopping jobs: no job is given; give one or use -mine"))
	}
	a, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	if *mine {
		if ids, err = myJobs(b, a); err != nil {
			return b.fail(err)
		}
	}
	stopped := []string{}
	for _, id := range ids {
		var of []string
		err := b.order(a, id, "cancel", palapi.ControlRequest{}, &of)
		if err != nil {
			b.io.printEach(stopped, "Stopped", "")
			return b.fail(err)
		}
		stopped = append(stopped, of...)
	}
	return b.show(stopped, func() {
		b.io.printEach(stopped, "Stopped", fmt.Sprintf("Nothing to stop in namespace %q.", b.namespace))
	})
}
