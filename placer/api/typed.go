// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ExplainCommand returns the command that explains a job.
func ExplainCommand(namespace, job string) string {
	return "nomad-pal explain " + InNamespace(namespace, ShellQuoted(job))
}

// StartRun returns the command that starts a run of a parameterized or periodic job.
func StartRun(job *api.Job) string {
	id := InNamespace(*job.Namespace, ShellQuoted(*job.ID))
	if job.IsPeriodic() {
		return "nomad job periodic force " + id
	}
	command := "nomad job dispatch "
	for _, key := range job.ParameterizedJob.MetaRequired {
		command += "-meta " + ShellQuoted(key) + "=<value> "
	}
	return command + id
}

// InNamespace returns a command's argument. If the namespace is not the default one, the flag for
// the namespace comes before the argument. "--" comes before an argument that begins with a dash,
// so that it is not read as a flag.
func InNamespace(namespace, arg string) string {
	if strings.HasPrefix(arg, "-") {
		arg = "-- " + arg
	}
	if namespace != "" && namespace != api.DefaultNamespace {
		return "-namespace " + ShellQuoted(namespace) + " " + arg
	}
	return arg
}

// ShellQuoted quotes s as one shell word.
func ShellQuoted(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.,/:+@%") == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
