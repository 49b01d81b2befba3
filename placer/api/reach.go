// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import (
	"errors"
	"net"
	"net/url"

	"github.com/hashicorp/nomad/api"
)

// Loopback reports whether an API's address can be reached only from its own machine.
func Loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Unprotected returns why a token must not be sent to an agent's address; nil if it may be sent.
// Loopback, and TLS to an address that the user named, are safe. An address that an agent has
// published in Nomad (published) also needs a certificate authority in the user's configuration,
// such as the authority of Nomad's own certificates. The system's authorities do not suffice,
// because anybody who can write to Nomad may have published the address, and the owner of any name
// can get a certificate for it.
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
		return errors.New("your token would be sent to an agent whose certificate is not verified")
	case published && t.CACert == "" && t.CAPath == "" && len(t.CACertPEM) == 0:
		return errors.New("your token would be sent to an agent whose certificate no configured CA has signed")
	}
	return nil
}
