// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package version says which build this is.
package version

// Number is the version of all binaries. The plugin's must stay above that of
// any nomad-device-nvidia: Nomad's loader keeps the plugin with the higher one.
const Number = "2.0.0"

// Revision is the commit of the build, set by the linker.
var Revision = "unknown"

// Human is the form that `version` prints.
func Human() string { return "v" + Number + " (" + Revision + ")" }
