// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rpc"
)

// Connect returns a client for the nomad block. Values that the block does not set come from
// Nomad's environment variables. All clients share their connections.
func (n *Nomad) Connect(through ...func(http.RoundTripper) http.RoundTripper) (*nomad.Client, error) {
	return n.connect(func(c *connections) *http.Client { return c.placer }, through...)
}

// connectForLock is like [Nomad.Connect], with connections that only the election uses.
func (n *Nomad) connectForLock(through ...func(http.RoundTripper) http.RoundTripper) (*nomad.Client, error) {
	return n.connect(func(c *connections) *http.Client { return c.lock }, through...)
}

func (n *Nomad) connect(which func(*connections) *http.Client, through ...func(http.RoundTripper) http.RoundTripper) (*nomad.Client, error) {
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	conns, err := n.connections(cfg)
	if err != nil {
		return nil, err
	}
	cfg.HttpClient = which(conns)
	return nomad.NewClient(cfg, n.Namespace, append(slices.Clone(through), n.namesRegions())...)
}

// connections returns the connections of this configuration. It makes them at the first call.
func (n *Nomad) connections(cfg *api.Config) (*connections, error) {
	n.opened.Lock()
	defer n.opened.Unlock()
	if n.conns == nil {
		conns, err := newConnections(cfg)
		if err != nil {
			return nil, err
		}
		n.conns = conns
	}
	return n.conns, nil
}

// disconnect closes the connections that no request uses.
func (n *Nomad) disconnect() {
	n.opened.Lock()
	defer n.opened.Unlock()
	if n.conns != nil {
		n.conns.close()
	}
}

// namesRegions returns a transport whose errors name the setting of an unknown region.
func (n *Nomad) namesRegions() func(http.RoundTripper) http.RoundTripper {
	if n.Region != "" {
		return nomad.NamesRegions("nomad { region } of the agent's configuration")
	}
	return nomad.NamesRegions("NOMAD_REGION")
}

// config returns the nomad block as a configuration of Nomad's own client.
func (n *Nomad) config() (*api.Config, error) {
	cfg := nomad.Config(api.Config{Address: n.Address, Region: n.Region, SecretID: n.Token, TLSConfig: &api.TLSConfig{
		CACert: n.CACert, ClientCert: n.ClientCert, ClientKey: n.ClientKey, TLSServerName: n.TLSServerName,
	}})
	if n.TokenFile != "" {
		token, err := os.ReadFile(n.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("nomad: token_file: %w", err)
		}
		cfg.SecretID = strings.TrimSpace(string(token))
		if cfg.SecretID == "" {
			return nil, fmt.Errorf("nomad: token_file: %q is empty", n.TokenFile)
		}
	}
	return cfg, nil
}

// certificates returns the certificates that an agent with this configuration shows to others.
// certificates ignores unreadable files, because the agent does not start with them.
func (f File) certificates() (all []heartbeat.Credential) {
	files := map[string]string{"http { cert_file }": f.HTTP.CertFile}
	if cfg, err := f.Nomad.config(); err == nil {
		files["nomad { client_cert }"] = cfg.TLSConfig.ClientCert
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[key])
		block, _ := pem.Decode(text)
		if err != nil || block == nil {
			continue
		}
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, heartbeat.Credential{Name: fmt.Sprintf("certificate %s (%s)", files[key], key), From: leaf.NotBefore, Until: leaf.NotAfter})
		}
	}
	return all
}

// tokenEvery is how often the agent asks Nomad when its token expires.
const tokenEvery = time.Hour

// watchToken asks Nomad every [tokenEvery] when the agent's token expires, until ctx ends.
func (a *Agent) watchToken(ctx context.Context, n *Nomad) {
	client, err := n.Connect(a.meter.Transport)
	if err != nil {
		return // the agent ends
	}
	for ; ctx.Err() == nil; pause(ctx, tokenEvery) {
		self, _, err := client.API().ACLTokens().Self((&api.QueryOptions{}).WithContext(ctx))
		switch {
		case err != nil: // also if the token has expired
		case self == nil || self.ExpirationTime == nil:
			a.warnings.Token(nil)
		default:
			a.warnings.Token([]heartbeat.Credential{{Name: "token in Nomad", From: self.CreateTime, Until: *self.ExpirationTime}})
		}
	}
}

// connectAs connects with the given token instead of the agent's own; "" means no token. All
// callers share a few connections.
func (n *Nomad) connectAs(token string) (*nomad.Client, error) {
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	conns, err := n.connections(cfg)
	if err != nil {
		return nil, err
	}
	cfg.SecretID, cfg.HttpClient = token, conns.callers
	return nomad.NewClient(cfg, n.Namespace, n.namesRegions())
}

// serveChildren enables the client to register dispatched and periodic jobs, if an RPC address is
// configured. These registrations bypass the client's transport, so they call mayWrite, which
// returns an error if the agent must not write.
func (n *Nomad) serveChildren(c *nomad.Client, mayWrite func() error) error {
	if n.RPCAddress == "" {
		return nil
	}
	addresses, err := rpcAddresses(n.RPCAddress)
	if err != nil {
		return err
	}
	cfg, err := n.config()
	if err != nil {
		return err
	}
	s := &rpc.Servers{Addresses: addresses, Region: cfg.Region, Token: cfg.SecretID}
	if s.TLS, err = rpcTLS(cfg); err != nil {
		return err
	}
	c.ServeChildren(nomad.Children{Plan: s.Plan, Register: func(ctx context.Context, job *api.Job, index uint64) (uint64, error) {
		if err := mayWrite(); err != nil {
			return 0, err
		}
		return s.Register(ctx, job, index)
	}})
	return nil
}

func (n *Nomad) addresses() error {
	if n.Address != "" {
		u, err := url.Parse(n.Address)
		if err != nil || !slices.Contains([]string{"http", "https", "unix"}, u.Scheme) {
			return fmt.Errorf("nomad: address: %q is not a URL such as https://nomad.example.com:4646 or unix:///run/nomad.sock", n.Address)
		}
	}
	if n.RPCAddress == "" {
		return nil
	}
	_, err := rpcAddresses(n.RPCAddress)
	return err
}

// rpcAddresses parses addresses of the form "host:port", separated by commas.
func rpcAddresses(text string) ([]string, error) {
	var out []string
	for _, a := range strings.Split(text, ",") {
		a = strings.TrimSpace(a)
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("nomad: rpc_address: %q is not host:port", a)
		}
		out = append(out, a)
	}
	return out, nil
}

// rpcTLS returns the TLS configuration for the servers' RPC port: nil if no certificate authority
// is configured for Nomad's HTTP API.
func rpcTLS(cfg *api.Config) (*tls.Config, error) {
	t := cfg.TLSConfig
	if t.CACert == "" && t.CAPath == "" {
		return nil, nil
	}
	// The client of the HTTP API has already read the same files, so reading them normally
	// succeeds.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "server." + cmp.Or(cfg.Region, "global") + ".nomad"}}}
	if err := api.ConfigureTLS(c, t); err != nil {
		return nil, fmt.Errorf("nomad: TLS of the RPC port: %w", err)
	}
	return c.Transport.(*http.Transport).TLSClientConfig, nil
}
