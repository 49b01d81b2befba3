// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nacp pins the Nomad Admission Control Proxy for the end-to-end test
// of our admission endpoint. It is a module of its own, so that the proxy's
// requirements stay out of ours; go.mod names the proxy as a tool:
//
//	go build -C e2e/nacp -o /tmp/nacp github.com/mxab/nacp/cmd/nacp
package nacp
