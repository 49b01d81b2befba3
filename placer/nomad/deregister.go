// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Deregister stops a job, and forgets it where purge is set. A job that is not
// there is stopped, also one that somebody else purges in the same moment, for
// which Nomad's state store says "job not found" (1.11.3: an error 500).
func (c *Client) Deregister(ctx context.Context, k JobKey, purge bool) error {
	w := (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx)
	_, _, err := c.api.Jobs().Deregister(k.ID, purge, w)
	if err != nil && !notFound(err) && !strings.Contains(err.Error(), "DeleteJob failed: job not found") {
		return fmt.Errorf("stopping job %q: %w", k.ID, Denied(err, SubmitJob))
	}
	return nil
}
