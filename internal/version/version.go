// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package version says which build this is.
package version

import "runtime/debug"

// Number is the version of all binaries. The linker sets Number to the tag's version, or to a
// version that sorts before the next release (release/version.sh). A plain go build keeps the value
// below, which names the next release. Number must stay above every version of nomad-device-nvidia,
// because Nomad's loader keeps the plugin with the higher version.
var Number = "2.0.0-dev"

// commit is set by the linker (make and release/build.sh). If commit is not set, Go's build
// information has the commit, except in a linked worktree (git worktree add), whose .git is a file.
var commit string

// Revision is the commit of the build, with "+dirty" if files were changed since then;
// "unknown" outside a checkout.
var Revision = revision()

func revision() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return commit + dirty
}

// Human returns the form that `version` prints.
func Human() string { return "v" + Number + " (" + Revision + ")" }
