// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A command that could not stop everything it had started does not claim that it has.
func TestEnding(t *testing.T) {
	for _, c := range []struct {
		err         error
		interrupted bool
		says        string
		claims      bool
		code        int
	}{
		{nil, false, "", false, 0},
		{errors.New("no port"), false, "no port", false, 1},
		{nil, true, "interrupted", true, 130},
		{fmt.Errorf("starting: %w", context.Canceled), true, "interrupted", true, 130},
		{errors.New("client 3 still runs"), true, "client 3 still runs", false, 130},
	} {
		said, code := ending(c.err, c.interrupted)
		if code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, "have been stopped") != c.claims {
			t.Errorf("%v, interrupted %v: %q, status %d", c.err, c.interrupted, said, code)
		}
	}
}
