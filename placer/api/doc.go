// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package api has the types of the agent's HTTP API: what the agent answers, and what it is asked. The
// agent, the web page, the commands and the schema of their JSON use the same types, and the methods
// here turn them into text. Package query makes the answers.
//
// What must stay true:
//   - The package imports none of the placer's packages, so all of them can import it, and a command
//     that asks the agent needs no other.
//   - A name in the JSON keeps its meaning. Later versions can add fields.
//   - Each type that names jobs of others has a method RedactedFor, which hides the names of jobs
//     that the reader may not see. It redacts each such field, and each reason.
package api
