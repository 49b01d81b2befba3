// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/nomad/api"
)

// httpClient is what Nomad's own client would use, but for three things: it asks
// for no compression, since Nomad makes a new compressor for each answer, which
// takes more than most requests do; it keeps as many connections as requests go out
// at a time; and it reads numbers that are none (see numbers.go).
func httpClient(cfg *api.Config) (*http.Client, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          2 * parallelReads,
		MaxIdleConnsPerHost:   2 * parallelReads,
		DisableCompression:    true,
	}
	if u, err := url.Parse(cfg.Address); err == nil && u.Scheme == "unix" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.EscapedPath())
		}
	}
	c := &http.Client{Transport: t}
	if err := api.ConfigureTLS(c, cfg.TLSConfig); err != nil {
		return nil, fmt.Errorf("connecting to Nomad at %q: %w", cfg.Address, err)
	}
	c.Transport = uncompressed{t}
	return c, nil
}

// uncompressed drops the wish for compression, which Nomad's client writes into
// each request.
type uncompressed struct{ *http.Transport }

func (u uncompressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	resp, err := u.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return withoutNaN(resp), nil
}
