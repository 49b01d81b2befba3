// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Connect makes a client from the nomad block; what it does not say comes from
// Nomad's environment variables.
func (n *Nomad) Connect(through ...func(http.RoundTripper) http.RoundTripper) (*nomad.Client, error) {
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	namespace := ""
	if n != nil {
		namespace = n.Namespace
	}
	return nomad.NewClient(cfg, namespace, through...)
}

// config is the nomad block as Nomad's own client takes it.
func (n *Nomad) config() (*api.Config, error) {
	cfg := api.DefaultConfig()
	if n == nil {
		n = &Nomad{}
	}
	for _, s := range []struct {
		from string
		to   *string
	}{
		{n.Address, &cfg.Address}, {n.Region, &cfg.Region}, {n.Token, &cfg.SecretID},
		{n.CACert, &cfg.TLSConfig.CACert}, {n.CAPath, &cfg.TLSConfig.CAPath},
		{n.ClientCert, &cfg.TLSConfig.ClientCert}, {n.ClientKey, &cfg.TLSConfig.ClientKey},
		{n.TLSServerName, &cfg.TLSConfig.TLSServerName},
	} {
		if s.from != "" {
			*s.to = s.from
		}
	}
	if n.SkipVerify {
		cfg.TLSConfig.Insecure = true
	}
	if n.TokenFile != "" {
		token, err := os.ReadFile(n.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("nomad: token_file: %w", err)
		}
		cfg.SecretID = strings.TrimSpace(string(token))
	}
	if n.HTTPAuth != "" {
		user, password, _ := strings.Cut(n.HTTPAuth, ":")
		cfg.HttpAuth = &api.HttpBasicAuth{Username: user, Password: password}
	}
	cfg.Namespace = "" // every request names its own
	return cfg, nil
}

// connectAuthors connects without a token: those who ask bring theirs.
func (n *Nomad) connectAuthors() (*api.Client, error) {
	cfg, err := n.config()
	if err != nil {
		return nil, err
	}
	cfg.SecretID = ""
	c, err := nomad.NewClient(cfg, "")
	if err != nil {
		return nil, err
	}
	return c.API(), nil
}
