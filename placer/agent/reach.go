// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"errors"
	"net"
	"net/url"

	"github.com/hashicorp/nomad/api"
)

// Loopback reports whether an address is that of an API which only its own machine reaches.
func Loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Unprotected says why a token must not travel to an agent's address; nil if it may. It may over
// loopback, and by TLS. An address that stands in Nomad may be anybody's who could write it there,
// and whoever owns a name gets a certificate for it: only an authority that the caller names, as
// that of Nomad's own certificates, tells the agent from them.
func Unprotected(address string, published bool, t *api.TLSConfig) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return err
	case Loopback(address):
		return nil
	case u.Scheme != "https":
		return errors.New("your token would cross the network in plain text")
	case published && t.Insecure:
		return errors.New("nothing verifies its certificate, and your token would go there")
	case published && t.CACert == "" && t.CAPath == "" && len(t.CACertPEM) == 0:
		return errors.New("no authority that you name vouches for it, and your token would go there")
	}
	return nil
}
