// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"os"
	"testing"

	"github.com/nomad-pal/nomad-pal/internal/guard"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }
