// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"reflect"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	msgpackrpc "github.com/hashicorp/net-rpc-msgpackrpc/v2"
)

// The first byte of a connection selects the protocol that the connection uses.
const (
	kindNomad = 0x01
	kindTLS   = 0x04
)

// The following hints are added to the error if the server closes the connection. A server that
// does not trust a client closes the connection without a message. With TLS 1.3, the server closes
// the connection only after the handshake (nomad/server.go, "invalid role or region for
// certificate").
const (
	tlsHint = "\nServers with verify_server_hostname accept only certificates for client.<region>.nomad or " +
		"server.<region>.nomad (nomad tls cert create -client)"
	noTLSHint = "\nServers with tls { rpc = true } accept only TLS connections: set ca_cert, client_cert and client_key"
)

// callLimit is the time limit for a connection and for all calls on the connection. The limit is
// longer than a leader election.
const callLimit = 30 * time.Second

// conn is a connection to one server. A conn supports one call at a time.
type conn struct {
	net.Conn
	codec *msgpackrpc.MsgpackCodec
	hint  string // a possible cause if the server closes the connection
}

// dial connects to the first server in the list that answers.
func (s *Servers) dial(ctx context.Context) (*conn, error) {
	var errs []error
	for _, address := range s.Addresses {
		c, err := s.dialOne(ctx, address)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("connecting to the RPC port of Nomad server %q: %w", address, err))
	}
	return nil, errors.Join(errs...)
}

func (s *Servers) dialOne(ctx context.Context, address string) (*conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	plain, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := plain.SetDeadline(time.Now().Add(callLimit)); err != nil {
		plain.Close()
		return nil, err
	}
	c, hint := plain, noTLSHint
	if s.TLS != nil {
		hint = tlsHint
		if c, err = handshake(ctx, plain, s.TLS); err != nil {
			plain.Close()
			return nil, err
		}
	}
	if _, err := c.Write([]byte{kindNomad}); err != nil {
		c.Close()
		return nil, err
	}
	return &conn{Conn: c, codec: msgpackrpc.NewCodecFromHandle(true, true, c, handle()), hint: hint}, nil
}

func handshake(ctx context.Context, plain net.Conn, config *tls.Config) (net.Conn, error) {
	if _, err := plain.Write([]byte{kindTLS}); err != nil {
		return nil, err
	}
	secure := tls.Client(plain, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure, nil
}

// handle returns a msgpack handle. The handle decodes raw bytes to strings, and maps to Go maps
// with string keys. A job that was decoded in another way could not be sent back to the server.
func handle() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.RawToString = true
	h.MapType = reflect.TypeFor[map[string]any]()
	return h
}

// call calls a method of the server, and decodes the answer into resp.
func (c *conn) call(ctx context.Context, method string, args, resp any) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	err := msgpackrpc.CallWithCodec(c.codec, method, args, resp)
	var refused rpc.ServerError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return fmt.Errorf("nomad server: %w", err)
	case err != nil:
		return fmt.Errorf("calling %s: %w%s", method, err, c.hint)
	}
	return nil
}
