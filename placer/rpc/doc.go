// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package rpc registers dispatched and periodic jobs through the RPC port of
// Nomad's servers. Nomad's HTTP API refuses to update a dispatched job and
// makes a periodic one forget its parent; the servers themselves do neither.
//
// A job travels as the generic map that the server sent, with our constraints
// put in, so that no field is lost that this program does not know. A job that
// was dispatched with a payload is never written: Nomad takes no payload with a
// registration, so the payload would be gone.
package rpc
