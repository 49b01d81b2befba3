// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nacp pins the Nomad Admission Control Proxy for the end-to-end test of our admission
// endpoint. The package is a separate module, so that our module does not get the proxy's
// requirements. The module's go.mod names the proxy as a tool:
//
//	go build -C e2e/nacp -o /tmp/nacp github.com/mxab/nacp/cmd/nacp
package nacp
