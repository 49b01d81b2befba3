// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ReadFile reads at most that many bytes from the beginning of a file of an allocation. The path is
// relative to the allocation's directory. A file that does not exist is empty, without an error.
func (c *Client) ReadFile(ctx context.Context, namespace, alloc, path string, most int64) ([]byte, error) {
	q := (&api.QueryOptions{Namespace: namespace, Params: map[string]string{"path": path, "offset": "0", "limit": strconv.FormatInt(most, 10)}}).WithContext(ctx)
	body, err := c.api.Raw().Response("/v1/client/fs/readat/"+url.PathEscape(alloc), q)
	if err != nil {
		if strings.Contains(err.Error(), "no such file or directory") { // with 400 or 500
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s of allocation %.8s: %w", path, alloc, Denied(err, ReadFS))
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return nil, fmt.Errorf("reading %s of allocation %.8s: %w", path, alloc, err)
	}
	return b, nil
}
