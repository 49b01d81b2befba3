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

// Unprotected returns why a token must not be sent to an agent's address; nil if it may. It may go
// over loopback, and over TLS. Anybody who can write to Nomad may have put the address there, and
// the owner of any name can get a certificate for it. So the caller must name an authority that
// identifies the agent, such as that of Nomad's own certificates.
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
