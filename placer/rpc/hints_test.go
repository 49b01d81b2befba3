// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"testing"
	"time"

	msgpackrpc "github.com/hashicorp/net-rpc-msgpackrpc/v2"
)

// certificate is a self-signed certificate with this name.
func certificate(t *testing.T, name string) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, parsed
}

// startTLS serves like a Nomad server with verify_server_hostname: it closes connections without TLS,
// and those with certificates that are not for clients or servers of the region.
func startTLS(t *testing.T, s *server, own tls.Certificate) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	methods := rpc.NewServer()
	if err := methods.RegisterName("Job", &jobMethods{s}); err != nil {
		t.Fatal(err)
	}
	takes := func(c net.Conn) bool {
		kind := make([]byte, 1)
		if _, err := c.Read(kind); err != nil || kind[0] != kindTLS {
			return false
		}
		secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert})
		if secure.Handshake() != nil || secure.ConnectionState().PeerCertificates[0].VerifyHostname("client.global.nomad") != nil {
			return false
		}
		if _, err := secure.Read(kind); err != nil || kind[0] != kindNomad {
			return false
		}
		methods.ServeCodec(msgpackrpc.NewCodecFromHandle(true, true, secure, handle()))
		return true
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			takes(c)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
}

// If a server closes the connection, our error gives advice. Whoever follows it
// is served.
func TestFollowsHints(t *testing.T) {
	s := &server{job: serverJob(t)}
	s.job["JobModifyIndex"] = 7
	own, trusted := certificate(t, "server.global.nomad")
	startTLS(t, s, own)
	roots := x509.NewCertPool()
	roots.AddCert(trusted)
	with := func(name string) *tls.Config {
		client, _ := certificate(t, name)
		return &tls.Config{RootCAs: roots, ServerName: "server.global.nomad", Certificates: []tls.Certificate{client}}
	}
	for _, of := range []struct {
		tls  *tls.Config
		says string
	}{
		{nil, noTLSHint},
		{with("my-laptop"), tlsHint}, // with ca_cert, client_cert and client_key set, as advised
		{with("client.global.nomad"), ""},
	} {
		job, namespace, region := pinned(), "default", "global"
		job.Namespace, job.Region = &namespace, &region
		_, err := (&Servers{Addresses: []string{s.address}, TLS: of.tls}).Register(t.Context(), job, 7)
		if of.says == "" && err != nil || of.says != "" && (err == nil || !strings.Contains(err.Error(), of.says)) {
			t.Errorf("want %q, got %v", of.says, err)
		}
	}
}
