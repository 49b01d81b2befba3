// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// Deregister stops a job, and forgets it where purge is set.
func (c *Client) Deregister(ctx context.Context, k JobKey, purge bool) error {
	w := (&api.WriteOptions{Namespace: k.Namespace}).WithContext(ctx)
	if _, _, err := c.api.Jobs().Deregister(k.ID, purge, w); err != nil && !notFound(err) {
		return fmt.Errorf("stopping job %q: %w", k.ID, Denied(err, SubmitJob))
	}
	return nil
}
