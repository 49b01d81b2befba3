// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"os"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

// With ownerVariable set, the test binary owns a cluster that it never closes. Otherwise it runs the
// tests.
const ownerVariable = "CLUSTER_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		os.Exit(ownForever())
	}
	os.Exit(guard.Main(m))
}
