// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
)

// issued is a self-signed certificate, its key, and their files.
type issued struct{ cert, key string }

func issue(t *testing.T, names ...string) issued {
	t.Helper()
	return issueFor(t, time.Hour, names...)
}

// issueFor issues a certificate that began an hour ago and expires after left.
func issueFor(t *testing.T, left time.Duration, names ...string) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := issued{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{out.cert: {Type: "CERTIFICATE", Bytes: der}, out.key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (i issued) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(i.cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// The API uses TLS with the names of its certificate. If a client authority is configured, it
// accepts only clients with a certificate from it.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, client := issue(t, "pal.example"), issue(t)
	zero := 0
	file := fileAt("http://127.0.0.1:1")
	file.HTTP = &HTTP{BindPort: &zero, CertFile: server.cert, KeyFile: server.key, ClientCA: client.cert}
	log := &testlog.Buffer{}
	s, err := New(hclog.New(&hclog.LoggerOptions{Output: log}), placer.Hooks{}).listen(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := contextOf(t)
	served := make(chan struct{})
	go func() { s.serve(ctx); close(served) }()
	ask := func(host string, certificates ...tls.Certificate) (int, error) {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.pool(t), ServerName: "pal.example", Certificates: certificates}}}
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.listener.Addr().String()+"/v1/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	pair, err := tls.LoadX509KeyPair(client.cert, client.key)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := ask("pal.example", pair); status != http.StatusOK {
		t.Errorf("with a certificate: status %d: %v", status, err)
	}
	if status, err := ask("evil.example", pair); status != http.StatusMisdirectedRequest {
		t.Errorf("under another name: status %d: %v", status, err)
	}
	if status, err := ask("pal.example"); err == nil {
		t.Errorf("without a certificate: status %d", status)
	}
	until(t, "the agent's log says why", func() bool { return strings.Contains(log.String(), "TLS handshake error") })
	stop()
	<-served
}

func TestTLSErrors(t *testing.T) {
	t.Parallel()
	ok := issue(t)
	for _, c := range []struct {
		http HTTP
		want string
	}{
		{HTTP{CertFile: ok.cert, KeyFile: ok.key, ClientCA: "/none"}, "http: client_ca_file: open /none"},
		{HTTP{CertFile: ok.cert, KeyFile: ok.key, ClientCA: ok.key}, "contains no PEM certificate"},
		{HTTP{ClientCA: ok.cert}, "requires both cert_file and key_file"},
	} {
		if _, err := c.http.tls(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.http, err, c.want)
		}
	}
}

// The agent's TLS settings for the servers' RPC port follow those for their HTTP API.
func TestRPCTLS(t *testing.T) {
	t.Parallel()
	i := issue(t)
	for _, c := range []struct {
		name   string
		tls    api.TLSConfig
		region string
		server string // "" for no TLS
		want   string // in the error message
	}{
		{"plain", api.TLSConfig{}, "", "", ""},
		{"an authority", api.TLSConfig{CACert: i.cert}, "", "server.global.nomad", ""},
		{"a folder of them, in a region", api.TLSConfig{CAPath: onlyCert(t, i)}, "eu", "server.eu.nomad", ""},
		{"a name and a certificate", api.TLSConfig{CACert: i.cert, TLSServerName: "n", ClientCert: i.cert, ClientKey: i.key}, "", "n", ""},
		{"no authority", api.TLSConfig{CACert: "/none"}, "", "", "open /none"},
		{"no certificate in it", api.TLSConfig{CACert: i.key}, "", "", "parse PEM"},
		{"no key", api.TLSConfig{CACert: i.cert, ClientCert: i.cert, ClientKey: "/none"}, "", "", "open /none"},
	} {
		got, err := rpcTLS(&api.Config{TLSConfig: &c.tls, Region: c.region})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		case err != nil || (got == nil) != (c.server == "") || got != nil && got.ServerName != c.server:
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	n := &Nomad{Address: "http://127.0.0.1:1", RPCAddress: "127.0.0.1:4647, 127.0.0.2:4647"}
	c, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.serveChildren(c, nil); err != nil {
		t.Error(err)
	}
}

// onlyCert returns a folder that contains only the certificate.
func onlyCert(t *testing.T, i issued) string {
	t.Helper()
	text, err := os.ReadFile(i.cert)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The agent warns of a certificate that expires soon, until it has read a new one.
func TestExpiringCertificates(t *testing.T) {
	t.Parallel()
	f := newFake(t, nil)
	old, fresh := issueFor(t, time.Minute, "localhost"), issueFor(t, time.Hour, "localhost")
	config := func(of issued) string {
		return fmt.Sprintf("http {\n  bind_port = 0\n  cert_file = %q\n  key_file = %q\n}\n", of.cert, of.key)
	}
	r := f.run(config(old))
	warned := func() string { return strings.Join(r.agent.health(time.Now()).Warnings, "; ") }
	until(t, "it warns", func() bool { return strings.Contains(warned(), old.cert+" (http { cert_file }) expires on") })
	r.configure(f, config(fresh))
	r.reload <- syscall.SIGHUP
	until(t, "it warns no longer", func() bool { return !strings.Contains(warned(), "expires on") })
	file := fileAt("https://127.0.0.1:1")
	file.Nomad.ClientCert, file.Nomad.ClientKey = old.cert, old.key
	if all := file.certificates(); len(all) != 1 || !strings.Contains(all[0].Name, "(nomad { client_cert })") || time.Until(all[0].Until) > time.Minute {
		t.Errorf("the certificate for Nomad: %+v", all)
	}
}
