// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package version says which build this is.
package version

import "runtime/debug"

// Number is the version of all binaries. The plugin's must stay above that of
// any nomad-device-nvidia: Nomad's loader keeps the plugin with the higher one.
const Number = "2.0.0"

// Revision is the commit of the build, with "+dirty" where files were changed
// since; "unknown" outside a checkout.
var Revision = revision()

func revision() string {
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

// Human is the form that `version` prints.
func Human() string { return "v" + Number + " (" + Revision + ")" }
