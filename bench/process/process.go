// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package process reads the resources that processes use from /proc.
package process

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Usage has the resources that a process uses.
type Usage struct {
	RSSMB   float64 `json:"rss_mb"`
	Threads int     `json:"threads"`
	Files   int     `json:"open_files"`

	// CPU is the processor time since the process started.
	CPU time.Duration `json:"-"`
}

// Of measures a process.
func Of(pid int) (Usage, error) {
	var stat procfs.ProcStat
	var files int
	p, err := procfs.NewProc(pid)
	if err == nil {
		stat, err = p.Stat()
	}
	if err == nil {
		files, err = p.FileDescriptorsLen()
	}
	if err != nil {
		return Usage{}, fmt.Errorf("measuring process %d: %w", pid, err)
	}
	return Usage{
		RSSMB: float64(stat.ResidentMemory()) / 1e6, Threads: stat.NumThreads, Files: files,
		CPU: time.Duration(stat.CPUTime() * float64(time.Second)),
	}, nil
}
