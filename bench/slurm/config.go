// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package slurm

import (
	"fmt"
	"path/filepath"
	"strings"
)

// layout has the values in a cluster's configuration.
type layout struct {
	dir      string // folder of all files
	host     string // this machine's host name
	user     string // user that runs the cluster
	nodes    []string
	gpusEach int
	ports    []int   // the controller's port, then one per node
	clock    float64 // how many times faster the controller's clock is
}

// socket is the socket on which munged listens.
func (l layout) socket() string { return filepath.Join(l.dir, "munge.sock") }

// device returns the file that represents a GPU. The file's name ends with digits, from which Slurm
// gets the GPU's number.
func (l layout) device(node, gpu int) string {
	return filepath.Join(l.dir, "dev", fmt.Sprintf("%s-%d", l.nodes[node], gpu))
}

// conf returns slurm.conf, as a small site would write it, with a processor core for each GPU. The
// timeouts are scaled by the speed of the controller's clock. So in real time, the controller waits
// for other processes as long as usual, and has as much time for scheduling as usual.
func (l layout) conf() string {
	at := func(name string) string { return filepath.Join(l.dir, name) }
	scaled := func(seconds float64) int { return int(seconds * max(1, l.clock)) }
	var b strings.Builder
	for _, kv := range [][2]any{
		{"ClusterName", "pal"},
		{"SlurmctldHost", l.host + "(127.0.0.1)"},
		{"SlurmctldPort", l.ports[0]},
		{"SlurmUser", l.user},
		{"SlurmdUser", l.user},
		{"AuthType", "auth/munge"},
		{"AuthInfo", fmt.Sprintf("socket=%s,cred_expire=%d", l.socket(), scaled(3600))},
		{"StateSaveLocation", at("state")},
		{"SlurmdSpoolDir", at("spool/%n")},
		{"SlurmctldPidFile", at("slurmctld.pid")},
		{"SlurmdPidFile", at("%n.pid")},
		{"SlurmctldLogFile", at("slurmctld.log")},
		{"SlurmdLogFile", at("%n.log")},
		{"ProctrackType", "proctrack/linuxproc"},
		{"TaskPlugin", "task/none"},
		{"MpiDefault", "none"},
		{"JobAcctGatherType", "jobacct_gather/none"},
		{"AccountingStorageType", "accounting_storage/none"},
		{"SchedulerType", "sched/backfill"},
		{"SchedulerParameters", fmt.Sprintf("bf_max_time=%d,bf_yield_interval=%d,max_sched_time=%d",
			scaled(30), scaled(2_000_000), scaled(2))},
		{"SelectType", "select/cons_tres"},
		{"SelectTypeParameters", "CR_Core"},
		{"GresTypes", "gpu"},
		{"SlurmdParameters", "config_overrides"}, // the nodes have more cores than the machine
		{"ReturnToService", 2},
		{"SlurmdTimeout", 0},
		{"MessageTimeout", scaled(60)},
		{"OverTimeLimit", "UNLIMITED"}, // a limit is only an estimate here, so Slurm must not stop jobs at their limits
	} {
		fmt.Fprintf(&b, "%s=%v\n", kv[0], kv[1])
	}
	for i, n := range l.nodes {
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d Gres=gpu:%d State=UNKNOWN\n",
			n, l.host, l.ports[1+i], l.gpusEach, l.gpusEach)
	}
	b.WriteString("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
	return b.String()
}

// gres returns gres.conf. The flag makes Slurm set CUDA_VISIBLE_DEVICES for each task.
func (l layout) gres() string {
	var b strings.Builder
	for i, n := range l.nodes {
		for g := range l.gpusEach {
			fmt.Fprintf(&b, "NodeName=%s Name=gpu File=%s Flags=nvidia_gpu_env\n", n, l.device(i, g))
		}
	}
	return b.String()
}
