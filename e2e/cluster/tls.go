// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/nomad/api"
)

// certificates are the files of a cluster with TLS: one authority, and one pair each for servers, clients and the CLI.
type certificates struct{ dir string }

// TLSFiles are the paths, PEM encoded, with which a program of ours reaches a cluster with TLS.
type TLSFiles struct {
	CA, Cert, Key string
	// ServerName is what the certificates of servers are made out to.
	ServerName string
}

// TLS returns the files for the CLI, the zero value for a cluster without TLS.
func (c *Cluster) TLS() TLSFiles {
	if c.tls == nil {
		return TLSFiles{}
	}
	return TLSFiles{CA: c.tls.path("ca.pem"), Cert: c.tls.path("cli.pem"), Key: c.tls.path("cli-key.pem"),
		ServerName: "server.global.nomad"}
}

func (c *certificates) path(name string) string { return filepath.Join(c.dir, name) }

func (c *certificates) apiConfig() *api.TLSConfig {
	return &api.TLSConfig{CACert: c.path("ca.pem"), ClientCert: c.path("cli.pem"), ClientKey: c.path("cli-key.pem")}
}

func (c *certificates) env() []string {
	return []string{
		"NOMAD_CACERT=" + c.path("ca.pem"),
		"NOMAD_CLIENT_CERT=" + c.path("cli.pem"),
		"NOMAD_CLIENT_KEY=" + c.path("cli-key.pem"),
	}
}

func (c *certificates) agentBlock(server bool) object {
	role := "client"
	if server {
		role = "server"
	}
	return object{
		"http": true, "rpc": true, "verify_server_hostname": true, "verify_https_client": true,
		"ca_file": c.path("ca.pem"), "cert_file": c.path(role + ".pem"), "key_file": c.path(role + "-key.pem"),
	}
}

// makeCertificates makes the authority and the three pairs below dir, valid for a day.
func makeCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: filepath.Join(dir, "tls")}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := template(1, "nomad-pal test authority")
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := c.write("ca", ca, ca, caKey, caKey); err != nil {
		return nil, err
	}
	for i, role := range []string{"server", "client", "cli"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		// Nomad checks <role>.<region>.nomad (verify_server_hostname).
		leaf := template(int64(i)+2, role+".global.nomad")
		leaf.DNSNames = []string{role + ".global.nomad", "localhost"}
		leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		leaf.KeyUsage = x509.KeyUsageDigitalSignature
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		if err := c.write(role, leaf, ca, key, caKey); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks of containers differ
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

// write signs a certificate for key with the authority's key and writes both as name.pem and name-key.pem.
func (c *certificates) write(name string, cert, ca *x509.Certificate, key, caKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	encode := func(file, kind string, der []byte) error {
		return os.WriteFile(c.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(encode(name+".pem", "CERTIFICATE", der), encode(name+"-key.pem", "EC PRIVATE KEY", keyDER))
}
