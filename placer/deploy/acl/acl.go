// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package acl holds the policies for Nomad's access control, for nomad-pal init.
package acl

import _ "embed"

// The policies of the agent, of clients whose plugin reads the profile from Nomad, and of
// a user of the namespace "research". The placer's variables are in "default".
var (
	//go:embed nomad-pal.policy.hcl
	Agent string
	//go:embed node.policy.hcl
	Node string
	//go:embed user.policy.hcl
	User string
)
