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

// missing is the last part of Nomad's message about a file that does not exist, "stat /…: no such
// file or directory". If the node that has the allocation answers the request, the status is 200,
// and the answer contains this text instead of the file. If another agent answers, the status is
// 400 or 500 (seen with 1.11.3).
const missing = ": no such file or directory"

// mostMissing is the maximum length of Nomad's message about a missing file. The path in the
// message has at most 4096 bytes.
const mostMissing = 8192

// ReadFile returns the first bytes of an allocation's file. most is the maximum number of bytes.
// The path is relative to the allocation's directory. If the file does not exist, ReadFile returns
// no bytes and no error.
func (c *Client) ReadFile(ctx context.Context, namespace, alloc, path string, most int64) ([]byte, error) {
	q := (&api.QueryOptions{Namespace: namespace, Params: map[string]string{"path": path, "offset": "0", "limit": strconv.FormatInt(most, 10)}}).WithContext(ctx)
	body, err := c.api.Raw().Response("/v1/client/fs/readat/"+url.PathEscape(alloc), q)
	if err != nil {
		if strings.Contains(err.Error(), missing) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s of allocation %.8s: %w", path, alloc, Denied(err, ReadFS))
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, max(most, mostMissing)))
	if err != nil {
		return nil, fmt.Errorf("reading %s of allocation %.8s: %w", path, alloc, err)
	}
	if text := string(b); strings.HasPrefix(text, "stat /") && strings.HasSuffix(text, missing) {
		return nil, nil
	}
	return b[:min(int64(len(b)), most)], nil
}
