// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hashicorp/nomad/api"
)

// certificates are the files of a cluster with TLS, made and named by `nomad tls`: a certificate
// authority, and a certificate and key each for servers, clients and the CLI.
type certificates struct{ dir string }

// TLSFiles has the paths of the PEM files with which our programs reach a cluster with TLS.
type TLSFiles struct {
	CA, Cert, Key string
	// ServerName is the name in the servers' certificates.
	ServerName string
}

// TLS returns the files for the CLI, or the zero value for a cluster without TLS.
func (c *Cluster) TLS() TLSFiles { return c.tlsOf("cli") }

// ClientTLS returns the files of clients. The servers' RPC port accepts no other certificates.
func (c *Cluster) ClientTLS() TLSFiles { return c.tlsOf("client") }

func (c *Cluster) tlsOf(role string) TLSFiles {
	if c.tls == nil {
		return TLSFiles{}
	}
	return c.tls.files(role)
}

// files returns the files of a role.
func (c *certificates) files(role string) TLSFiles {
	at := func(name string) string { return filepath.Join(c.dir, name) }
	return TLSFiles{CA: at("nomad-agent-ca.pem"), Cert: at("global-" + role + "-nomad.pem"), Key: at("global-" + role + "-nomad-key.pem"),
		ServerName: "server.global.nomad"}
}

func (c *certificates) apiConfig() *api.TLSConfig {
	f := c.files("cli")
	return &api.TLSConfig{CACert: f.CA, ClientCert: f.Cert, ClientKey: f.Key}
}

func (c *certificates) env() []string {
	f := c.files("cli")
	return []string{"NOMAD_CACERT=" + f.CA, "NOMAD_CLIENT_CERT=" + f.Cert, "NOMAD_CLIENT_KEY=" + f.Key}
}

func (c *certificates) agentBlock(server bool) object {
	role := "client"
	if server {
		role = "server"
	}
	f := c.files(role)
	return object{
		"http": true, "rpc": true, "verify_server_hostname": true, "verify_https_client": true,
		"ca_file": f.CA, "cert_file": f.Cert, "key_file": f.Key,
	}
}

// makeCertificates makes the authority and the three pairs of certificate and key below dir.
func makeCertificates(nomad, dir string) (*certificates, error) {
	c := &certificates{dir: filepath.Join(dir, "tls")}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"ca", "create"}, {"cert", "create", "-server"}, {"cert", "create", "-client"}, {"cert", "create", "-cli"}} {
		cmd := exec.Command(nomad, append([]string{"tls"}, args...)...)
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("nomad tls %s: %w\n%s", args[0], err, out)
		}
	}
	return c, nil
}
