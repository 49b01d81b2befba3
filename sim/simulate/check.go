// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal"
)

// check checks the flags that do not depend on the configuration.
func (o *options) check() error {
	switch {
	case o.fromHistory && o.trace != "":
		return errors.New("-from-history cannot be combined with -trace")
	case !o.fromHistory && o.since != "":
		return errors.New("-since can be used only with -from-history")
	}
	if err := o.checkNumbers(); err != nil {
		return err
	}
	if err := o.checkUnused(); err != nil {
		return err
	}
	return o.checkModels()
}

// checkNumbers checks the range of each number.
func (o *options) checkNumbers() error {
	switch {
	case o.nodes <= 0 || o.gpusPerNode <= 0:
		return errors.New("-nodes and -gpus-per-node must be positive")
	case o.nodes > pal.MaxGPUs/o.gpusPerNode:
		return fmt.Errorf("-nodes %d with -gpus-per-node %d are more than %d GPUs", o.nodes, o.gpusPerNode, pal.MaxGPUs)
	case o.outliers < -1:
		return fmt.Errorf("-outliers %d is neither -1 nor a number of GPUs", o.outliers)
	case o.jobs <= 0:
		return fmt.Errorf("-jobs %d must be positive", o.jobs)
	case o.seed > 1<<32-1:
		return fmt.Errorf("-seed %d is above %d", o.seed, uint32(1<<32-1))
	}
	if o.checkpoint < 0 {
		return fmt.Errorf("-checkpoint %v must not be negative", o.checkpoint)
	}
	return nil
}

// checkUnused refuses flags that other flags leave without effect.
func (o *options) checkUnused() error {
	const cluster, jobs = "-from-history, which reads the cluster", "-trace or -from-history, which read the jobs"
	read := o.fromHistory || o.trace != ""
	for _, f := range []struct {
		name   string
		unused bool
		by     string
	}{
		{"nodes", o.fromHistory, cluster}, {"gpus-per-node", o.fromHistory, cluster}, {"gpus", o.fromHistory, cluster},
		{"profile", o.fromHistory, cluster}, {"outliers", o.fromHistory, cluster}, {"outliers", o.profile != "", "-profile, which says how fast the GPUs are"},
		{"generate", read, jobs}, {"jobs", read, jobs},
	} {
		if f.unused && o.set[f.name] {
			return fmt.Errorf("-%s cannot be combined with %s", f.name, f.by)
		}
	}
	return nil
}
