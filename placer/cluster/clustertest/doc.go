// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package clustertest makes nodes and jobs for tests.
package clustertest
