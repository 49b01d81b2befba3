// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad reads from Nomad what the device plugin needs: the calibrated profile, which the
// active placer stores in Nomad Variables, and which GPUs are allocated.
//
// Every change must keep this rule: [Options.Allocated] returns an error unless Nomad's answer
// proves which GPUs are free, because the plugin measures free GPUs.
package nomad

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Prefix is the prefix of the variables that hold the profile.
const Prefix = "nomad-pal/profile/"

// Options configure the connection to Nomad. If a field is empty, Nomad's environment variable
// (NOMAD_ADDR, NOMAD_TOKEN, NOMAD_CACERT …) or Nomad's default applies. Tags are the keys of the
// plugin's configuration.
type Options struct {
	Address string `codec:"address"`
	// TokenFile is read before each request, so that an operator can replace the token.
	TokenFile  string `codec:"token_file"`
	CACert     string `codec:"ca_cert"` // a path, like ClientCert and ClientKey
	ClientCert string `codec:"client_cert"`
	ClientKey  string `codec:"client_key"`
}

// Source reads the profile from Nomad.
type Source struct {
	opts   Options
	space  string        // namespace of the variables
	api    *api.Client   // nil until made
	within time.Duration // how long one read may take
	seen   string        // shards and their indexes at the last read
}

// lookWithin is the time limit of a Read, longer than Nomad needs to return all shards.
const lookWithin = time.Minute

// Open returns a source for the variables of a namespace; "" is the default namespace. Open reads
// no file and does not connect.
func Open(o Options, namespace string) *Source {
	return &Source{opts: o, space: namespace, within: lookWithin}
}

// client returns a client with the present certificates.
func (o Options) client(namespace string) (*api.Client, error) {
	cfg := api.DefaultConfig()
	cfg.Address, cfg.Namespace = cmp.Or(o.Address, cfg.Address), cmp.Or(namespace, cfg.Namespace)
	tls := cfg.TLSConfig
	tls.CACert, tls.ClientCert, tls.ClientKey = cmp.Or(o.CACert, tls.CACert), cmp.Or(o.ClientCert, tls.ClientCert), cmp.Or(o.ClientKey, tls.ClientKey)
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to Nomad at %q: %w", cfg.Address, err)
	}
	return client, nil
}

// Read returns the profile if it has changed since the last Read, otherwise nil. After an error,
// the next Read loads the certificates again, because they may have been replaced. The next Read
// still compares with the last profile that was read.
func (s *Source) Read(ctx context.Context) (p *profile.Profile, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	if s.api == nil {
		if s.api, err = s.opts.client(s.space); err != nil {
			return nil, err
		}
	}
	if p, err = s.read(ctx); err != nil {
		s.api.Close()
		s.api = nil
	}
	return p, err
}

func (s *Source) read(ctx context.Context) (*profile.Profile, error) {
	if err := s.opts.authenticate(s.api); err != nil {
		return nil, err
	}
	// Any server may answer, not only the leader, because a profile is not urgent.
	stale := (&api.QueryOptions{AllowStale: true}).WithContext(ctx)
	list, _, err := s.api.Variables().PrefixList(Prefix, stale)
	if err != nil {
		return nil, fmt.Errorf("listing Nomad Variables %q: %w", Prefix, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no profile in Nomad Variables %q, or the token cannot list them", Prefix)
	}
	var seen strings.Builder
	for _, v := range list {
		seen.WriteString(fmt.Sprintf("%s@%d ", v.Path, v.ModifyIndex))
	}
	if seen.String() == s.seen {
		return nil, nil
	}
	shards := make([]profile.Shard, 0, len(list))
	for _, v := range list {
		full, _, err := s.api.Variables().Read(v.Path, stale)
		if err != nil {
			return nil, fmt.Errorf("reading Nomad Variable %q: %w", v.Path, err)
		}
		shards = append(shards, profile.Shard(full.Items))
	}
	p, err := profile.Join(shards)
	if err != nil { // the placer may be writing the profile at this moment
		return nil, fmt.Errorf("reading Nomad Variables %q: %w", Prefix, err)
	}
	s.seen = seen.String()
	return p, nil
}

// authenticate sets the client's token to the file's present content.
func (o Options) authenticate(client *api.Client) error {
	if o.TokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the Nomad token: %w", err)
	}
	client.SetSecretID(strings.TrimSpace(string(token)))
	return nil
}
