// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package acl embeds the policies for Nomad's ACLs. nomad-pal init writes them.
package acl

import _ "embed"

// Policies for the agent (Agent), for the device plugins of clients (Node), and for a user of the
// namespace "research" (User). They assume that the placer's variables are in the namespace
// "default". The integration tests use these policies, so they fail if a right is missing.
var (
	//go:embed nomad-pal.policy.hcl
	Agent string
	//go:embed node.policy.hcl
	Node string
	//go:embed user.policy.hcl
	User string
)
