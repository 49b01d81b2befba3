// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// variables is a Nomad that has only variables.
type variables struct {
	mu    sync.Mutex
	items map[string]map[string]string // items of the variables, by path
	index map[string]uint64
	reads int    // number of reads of single variables
	token string // token of the last request
	code  int    // status code instead of an answer; 0 for none
}

func (v *variables) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token = r.Header.Get("X-Nomad-Token")
	if v.code != 0 {
		http.Error(w, "refused", v.code)
		return
	}
	var out any
	if path, one := strings.CutPrefix(r.URL.Path, "/v1/var/"); one {
		v.reads++
		out = api.Variable{Path: path, Items: v.items[path]}
	} else {
		list := []api.VariableMetadata{}
		for path := range v.items {
			if strings.HasPrefix(path, r.URL.Query().Get("prefix")) {
				list = append(list, api.VariableMetadata{Path: path, ModifyIndex: v.index[path]})
			}
		}
		sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
		out = list
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		panic(err)
	}
}

// put stores the profile's shards from number `from` on, for this version.
func (v *variables) put(t *testing.T, version, from int) {
	t.Helper()
	p, err := profile.Build([]profile.Sample{{GPU: "GPU-0", Model: "M", Key: "k", App: "A", Time: 1}}, profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Version = version
	shards, err := p.Shards(400)
	if err != nil {
		t.Fatal(err)
	}
	if len(shards) < 2 {
		t.Fatalf("%d shards: the test needs several", len(shards))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, s := range shards[from:] {
		path := fmt.Sprintf("%s%04d", Prefix, from+i)
		v.items[path] = s
		v.index[path]++
	}
}

func source(t *testing.T, v *variables) (*Source, string) {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(Options{Address: server.URL, TokenFile: token}, ""), token
}

func TestRead(t *testing.T) {
	v := &variables{items: map[string]map[string]string{}, index: map[string]uint64{}}
	s, token := source(t, v)
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no profile") {
		t.Errorf("without variables: %v", err)
	}
	v.put(t, 7, 0)
	p, err := s.Read(t.Context())
	if err != nil || p == nil || p.Version != 7 || v.token != "first" {
		t.Fatalf("profile %v, error %v, token %q; want version 7 with the file's token", p, err, v.token)
	}
	reads := v.reads
	if p, err := s.Read(t.Context()); p != nil || err != nil || v.reads != reads {
		t.Errorf("unchanged: profile %v, error %v, %d variables read; want nothing", p, err, v.reads-reads)
	}
	if err := os.WriteFile(token, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.put(t, 8, 1) // half-written: the first shard is still the old one
	if _, err := s.Read(t.Context()); err == nil || v.token != "second" {
		t.Errorf("half-written: error %v, token %q", err, v.token)
	}
	v.put(t, 8, 0)
	if p, err := s.Read(t.Context()); err != nil || p == nil || p.Version != 8 {
		t.Errorf("profile %v, error %v; want version 8", p, err)
	}
	v.code = http.StatusForbidden
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), Prefix) {
		t.Errorf("refused: %v", err)
	}
}

func TestTokenFileThatIsMissing(t *testing.T) {
	s := Open(Options{TokenFile: filepath.Join(t.TempDir(), "none")}, "")
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

// An answer that never comes does not stop the plugin from following the profile.
func TestAnswerThatNeverComes(t *testing.T) {
	v := &variables{items: map[string]map[string]string{}, index: map[string]uint64{}}
	v.put(t, 7, 0)
	lost := make(chan struct{})
	var answers atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers.Load() {
			<-lost
		}
		v.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer close(lost)
	s := Open(Options{Address: server.URL}, "")
	s.within = 100 * time.Millisecond
	ctx, cancel := patience.Context(t.Context(), patience.Long)
	defer cancel()
	if _, err := s.Read(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("error %v, %v", err, ctx.Err())
	}
	answers.Store(true)
	s.within = time.Minute
	if p, err := s.Read(ctx); err != nil || p.Version != 7 {
		t.Errorf("profile %v, error %v; want version 7", p, err)
	}
}

// A certificate that is missing can be put in place while the plugin runs.
func TestCertificateThatIsReplaced(t *testing.T) {
	v := &variables{items: map[string]map[string]string{}, index: map[string]uint64{}}
	v.put(t, 7, 0)
	server := httptest.NewUnstartedServer(v)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // discards the server's messages about failed handshakes
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	s := Open(Options{Address: server.URL, CACert: ca}, "")
	if _, err := s.Read(t.Context()); err == nil || !strings.Contains(err.Error(), ca) {
		t.Errorf("without the file: %v", err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Read(t.Context()); err != nil || p.Version != 7 {
		t.Errorf("profile %v, error %v; want version 7", p, err)
	}
}
