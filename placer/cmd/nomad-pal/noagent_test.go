// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/store"
)

// withoutAgent maps the commands that work without an agent to the arguments of this test; "" if
// another test covers the command.
var withoutAgent = map[string]string{
	"doctor": "", "init": "", "run": "run -detach JOB", "release": "release -all -now",
	"quarantine": "quarantine", "profile import": "", "profile export": "", "profile show": "",
	"agent": "", "classify": "", "profile": "", "simulate": "", "version": "version",
}

// needAgent are the commands that need an agent.
var needAgent = map[string]string{
	"plan": "plan JOB", "explain": "explain train", "status": "status", "queue": "queue", "events": "events", "history": "history", "hold": "hold train", "requeue": "requeue train", "priority": "priority train 5", "shell": "shell true", "gpus": "gpus", "cancel": "cancel train",
}

// Without an agent, a command that needs one says so in one line, with the addresses that it tried
// and what to do. The other commands work. Every command is of one of the two kinds.
func TestWithoutAgent(t *testing.T) {
	c := newCluster(t)
	all := slices.Sorted(maps.Keys(commands(t.Context(), streams{})))
	if known := slices.Sorted(maps.Keys(withoutAgent)); !slices.Equal(all, slices.Sorted(slices.Values(append(known, slices.Collect(maps.Keys(needAgent))...)))) {
		t.Errorf("say of each command whether it needs an agent: %q", all)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	job := c.job("default", "train", 2)
	lost := httptest.NewServer(http.NotFoundHandler())
	lost.Close()
	troubled := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the agent cannot reach Nomad", http.StatusBadGateway)
	}))
	defer troubled.Close()
	now := time.Now()
	for _, of := range []struct {
		name     string
		beat     store.Heartbeat
		set      string // value of NOMAD_PAL_ADDR
		says, do string
	}{
		{"none", store.Heartbeat{}, "", "NOMAD_PAL_ADDR is not set, and no agent has published its address in Nomad", "start one (nomad-pal agent), or set NOMAD_PAL_ADDR"},
		{"it ended", store.Heartbeat{Agent: host + "/1", Since: now, Worked: now, Stopped: true, Address: lost.URL}, "", "", ""},
		{"it does not answer", store.Heartbeat{Agent: host + "/1", Since: now, Worked: now, Address: lost.URL}, "", lost.URL + " (published in Nomad ", "is an agent running there?"},
		{"it cannot reach Nomad", store.Heartbeat{Agent: host + "/1", Since: now, Worked: now, Address: troubled.URL}, "", troubled.URL + " (published in Nomad ", "the agent answers 502: the agent cannot reach Nomad: look at this agent's log; a standby agent takes over within a minute"},
		{"without an API", store.Heartbeat{Agent: host + "/1", Since: now, Worked: now}, "", "agent " + host + "/1 publishes no address", "set http { advertise }"},
		{"on another machine only", store.Heartbeat{Agent: "other/1", Since: now, Worked: now, Address: "http://127.0.0.1:8090"}, "", "agent other/1 listens only on its own machine, at http://127.0.0.1:8090", "run the command on other"},
		{"named, and not there", store.Heartbeat{}, lost.URL, lost.URL + " (NOMAD_PAL_ADDR): ", "is an agent running there?"},
	} {
		if of.beat.Agent != "" {
			c.beat(of.beat)
		}
		t.Setenv("NOMAD_PAL_ADDR", of.set)
		active := "" // an agent that answers with an error is not active
		if strings.HasPrefix(of.says, troubled.URL) {
			active = "active "
		}
		for name, text := range needAgent {
			if text == "" {
				continue // another test covers it
			}
			code, out, said := c.does(strings.Fields(strings.ReplaceAll(text, "JOB", job))...)
			if code != exitNoPlacer || out != "" || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "Error: no "+active+"agent answers: ") || !strings.Contains(said, of.says) || !strings.Contains(said, of.do) {
				t.Errorf("%s, %s: %d %s%s", of.name, name, code, out, said)
			}
		}
		for name, text := range withoutAgent {
			if text == "" {
				continue
			}
			code, out, said := c.does(strings.Fields(strings.ReplaceAll(text, "JOB", job))...)
			if code != 0 || out == "" {
				t.Errorf("%s, %s: %d %s%s", of.name, name, code, out, said)
			}
		}
	}
}

// The last active agent has written no heartbeat for a while. A standby agent takes over only when
// the lost agent's lock has expired, so the command advises waiting a minute.
func TestLastSeen(t *testing.T) {
	c := newCluster(t)
	c.nomad.StepClock(-5 * time.Minute)
	c.beat(store.Heartbeat{Agent: "one/1", Since: time.Now(), Worked: time.Now(), Address: "http://one:8090"})
	c.nomad.StepClock(5 * time.Minute)
	code, out, said := c.does("status")
	if want := "agent one/1, at http://one:8090, was last seen 5m ago: wait a minute if another agent stands by; otherwise start one"; code != exitNoPlacer || !strings.Contains(said, want) {
		t.Errorf("%d %s%s, want %q", code, out, said, want)
	}
	c.agent("", "http {\n  bind_port = 0\n}\n")
	c.until("a new agent answers", func() bool { code, _, _ := c.does("status"); return code == 0 })
}

// run continues when the agent answers again. Meanwhile it says once that it waits for the agent.
func TestRunWaitsForAgent(t *testing.T) {
	c := newCluster(t)
	to, err := url.Parse(c.agent("", "http {\n  bind_port = 0\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	pass, asked := httputil.NewSingleHostReverseProxy(to), atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/explain") && asked.Add(1) <= 2 {
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Setenv("NOMAD_PAL_ADDR", s.URL)
	code, out, said := c.does("run", c.job("default", "train", 2))
	if code != 0 || !strings.Contains(out, "train runs") || strings.Count(said, "The agent does not answer") != 1 || !strings.Contains(said, "The agent answers again.") {
		t.Errorf("%d %s%s", code, out, said)
	}
}

// recorder records the tokens in requests, and answers like an agent.
type recorder struct {
	mu    sync.Mutex
	asked int
	first string // the first token
	had   []string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	token := q.Header.Get("X-Nomad-Token") + q.Header.Get("Authorization")
	if r.asked == 1 {
		r.first = q.Header.Get("X-Nomad-Token")
	}
	if token != "" {
		r.had = append(r.had, q.Method+" "+q.URL.Path+" "+token)
	}
	if q.URL.Path == "/v1/agent" {
		fmt.Fprint(w, `{"working": true}`)
		return
	}
	http.Error(w, "trapped", http.StatusTeapot)
}

func (r *recorder) take() (asked int, had []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, had = r.asked, r.had
	r.asked, r.had = 0, nil
	return asked, had
}

// A token is not sent over a network in plain text, wherever the address comes from, unless the
// user allows it. Requests without a token are sent.
func TestTokenTravelsProtected(t *testing.T) {
	c := newCluster(t)
	trap := &recorder{}
	s := httptest.NewServer(trap)
	t.Cleanup(s.Close)
	loopback := s.URL
	// Linux routes this address to this machine, although it is not a loopback
	// address.
	elsewhere := strings.Replace(s.URL, "127.0.0.1", "0.0.0.0", 1)
	job := c.job("default", "train", 2)
	host, _ := os.Hostname()
	tokens := map[string][2]string{"token": {"NOMAD_TOKEN", "secret"}, "basic authentication": {"NOMAD_HTTP_AUTH", "somebody:secret"}, "none": {"NOMAD_TOKEN", ""}}
	for name, of := range map[string]struct {
		named, published, word string
		goes                   bool
	}{
		"named, elsewhere":                      {named: elsewhere},
		"published, elsewhere":                  {published: elsewhere},
		"named, elsewhere, with the word":       {named: elsewhere, word: "true", goes: true},
		"published, elsewhere, with the word":   {published: elsewhere, word: "true", goes: true},
		"named, on this machine":                {named: loopback, goes: true},
		"published, on this machine":            {published: loopback, goes: true},
		"published, elsewhere, without a word":  {published: elsewhere, word: "false"},
		"named, elsewhere, with another's word": {named: elsewhere, word: "maybe"},
	} {
		c.beat(store.Heartbeat{Agent: host + "/1", Since: time.Now(), Worked: time.Now(), Address: of.published})
		t.Setenv("NOMAD_PAL_ADDR", of.named)
		t.Setenv("NOMAD_PAL_TOKEN_PLAIN", of.word)
		for what, token := range tokens {
			t.Setenv(token[0], token[1])
			for _, args := range [][]string{{"explain", "train"}, {"queue"}, {"status"}, {"gpus"}, {"plan", job}, {"run", job}, {"events"}, {"doctor"}} {
				_, _, said := c.does(args...)
				asked, had := trap.take()
				if with := token[1] != ""; (len(had) > 0) != (with && of.goes) || (asked > 0) != (of.goes || !with) {
					t.Errorf("%s, %s, %v: %d requests, with tokens: %q\n%s", name, what, args, asked, had, said)
				}
				if trap.first != "" {
					t.Errorf("%s, %v: got the token before it was known to be an agent", name, args)
				}
				if token[1] != "" && !of.goes && args[0] == "queue" && !strings.Contains(said, "your token would cross the network in plain text: give the agent a certificate, or send the token unprotected (NOMAD_PAL_TOKEN_PLAIN=true)") {
					t.Errorf("%s: %s", name, said)
				}
			}
			t.Setenv(token[0], "")
		}
	}
}

// A standby agent redirects a request to the active agent. The command follows, but sends the token
// only to an address that a published address may be.
func TestRedirectedTokenIsProtected(t *testing.T) {
	c := newCluster(t)
	trap := &recorder{}
	active := httptest.NewServer(trap)
	t.Cleanup(active.Close)
	elsewhere := strings.Replace(active.URL, "127.0.0.1", "0.0.0.0", 1)
	for name, of := range map[string]struct {
		to, word, says string
		goes           bool
	}{
		"on this machine":          {to: active.URL, goes: true},
		"elsewhere":                {to: elsewhere, says: "your token would cross the network in plain text: give the agent a certificate"},
		"elsewhere, with the word": {to: elsewhere, word: "true", goes: true},
		"in a circle":              {says: "the agents redirect to each other: set http { advertise }"},
	} {
		standby := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/agent" {
				fmt.Fprint(w, `{"working": true}`)
				return
			}
			http.Redirect(w, r, of.to+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		}))
		t.Cleanup(standby.Close)
		t.Setenv("NOMAD_PAL_ADDR", standby.URL)
		t.Setenv("NOMAD_PAL_TOKEN_PLAIN", of.word)
		for what, token := range map[string][2]string{"token": {"NOMAD_TOKEN", "secret"}, "basic authentication": {"NOMAD_HTTP_AUTH", "somebody:secret"}} {
			t.Setenv(token[0], token[1])
			for _, args := range [][]string{{"explain", "train"}, {"queue"}, {"events"}, {"plan", c.job("default", "train", 2)}} {
				code, _, said := c.does(args...)
				if _, had := trap.take(); (len(had) > 0) != of.goes || of.says != "" && (code != exitNoPlacer || !strings.Contains(said, of.says)) {
					t.Errorf("%s, %s, %v: tokens %q, exit code %d: %s", name, what, args, had, code, said)
				}
			}
			t.Setenv(token[0], "")
		}
	}
}

// The error distinguishes an agent of another version, and a server that is not an agent, from an
// agent that does not answer.
func TestAgentOfAnotherVersion(t *testing.T) {
	c := newCluster(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/agent" {
			fmt.Fprint(w, `{"working": true, "version": "v1.0.0", "later": {}}`)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	t.Setenv("NOMAD_PAL_ADDR", s.URL)
	for _, args := range [][]string{{"queue"}, {"explain", "train"}, {"events"}} {
		if code, out, said := c.does(args...); code != 1 || out != "" || !strings.HasPrefix(said, "Error: the agent at "+s.URL+" does not serve this request: the server is not an agent of nomad-pal, or has another version (v1.0.0; this command is ") {
			t.Errorf("%v: %d %s%s", args, code, out, said)
		}
	}
	t.Setenv("NOMAD_PAL_ADDR", c.url) // Nomad's own address
	if code, out, said := c.does("queue"); code != exitNoPlacer || out != "" || !strings.HasPrefix(said, "Error: no agent answers: "+c.url+" (NOMAD_PAL_ADDR): ") {
		t.Errorf("Nomad: %d %s%s", code, out, said)
	}
}

// expiredServer starts a server whose certificate has expired. It returns its address, and the file
// with the certificate.
func expiredServer(t *testing.T) (url, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	file = filepath.Join(t.TempDir(), "old.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, file
}

// If the region does not exist, commands say where it can come from, and which regions exist.
func TestRegionIsExplained(t *testing.T) {
	c := newCluster(t)
	federated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/regions" {
			_, _ = io.WriteString(w, `["east","global"]`)
			return
		}
		http.Error(w, "No path to region", http.StatusInternalServerError)
	}))
	t.Cleanup(federated.Close)
	t.Setenv("NOMAD_ADDR", federated.URL)
	job := c.written("job.nomad.hcl", `job "j" {
  region = "venus"
  group "g" {
    task "t" {
      driver = "raw_exec"
    }
  }
}`)
	t.Setenv("NOMAD_REGION", "moon")
	for region, args := range map[string][]string{"moon": {"queue"}, "mars": {"doctor", "-region=mars"}, "venus": {"run", job}} {
		code, out, said := c.does(args...)
		want := fmt.Sprintf("Nomad has no region %q (from -region, NOMAD_REGION or the jobspec). The regions are: east, global", region)
		if text := strings.Join(strings.Fields(out+said), " "); code == 0 || !strings.Contains(text, want) {
			t.Errorf("%v: %d %s, want %q", args, code, text, want)
		}
	}
}

// If TLS fails, commands say what to change, for the agent and for Nomad. With that change they
// reach the server, which is neither.
func TestTLSIsExplained(t *testing.T) {
	c := newCluster(t)
	plain, secure, strict := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	strict.StartTLS()
	ca, cert, key := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	made := secure.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		ca: {Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}, cert: {Type: "CERTIFICATE", Bytes: made.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*httptest.Server{plain, secure, strict} {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		t.Cleanup(s.Close)
	}
	expired, old := expiredServer(t)
	trust, notFound := map[string]string{"NOMAD_CACERT": ca}, regexp.MustCompile(`\b404\b`) // not a part of a port
	for _, of := range []struct {
		address string
		env     map[string]string
		says    string // "" if the server answers
	}{
		{secure.URL, nil, "give the CA of its certificate (NOMAD_CACERT)"},
		{secure.URL, trust, ""},
		{strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), trust, "use a name in the address for which the certificate is valid"},
		{strings.Replace(plain.URL, "http:", "https:", 1), trust, "write http:// in the address, because the server does not use TLS"},
		{plain.URL, nil, ""},
		{strings.Replace(secure.URL, "https:", "http:", 1), nil, "write https:// in the address, because the server uses TLS"},
		{strict.URL, trust, "use a certificate that the server accepts (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY)"},
		{strict.URL, map[string]string{"NOMAD_CACERT": ca, "NOMAD_CLIENT_CERT": cert, "NOMAD_CLIENT_KEY": key}, ""},
		{expired, map[string]string{"NOMAD_CACERT": old}, "renew its certificate, and make the server load the new one"},
	} {
		for _, name := range []string{"NOMAD_CACERT", "NOMAD_CLIENT_CERT", "NOMAD_CLIENT_KEY"} {
			t.Setenv(name, of.env[name])
		}
		for _, server := range []string{"-pal-address", "-address"} {
			for _, command := range []string{"queue", "doctor"} {
				_, out, said := c.does(command, server, of.address)
				text := out + said
				if reached := notFound.MatchString(text) || strings.Contains(text, "does not serve this request"); reached != (of.says == "") || !strings.Contains(text, of.says) {
					t.Errorf("%s %s %s %v: %s", command, server, of.address, of.env, text)
				}
			}
		}
	}
	host, _ := os.Hostname()
	c.beat(store.Heartbeat{Agent: host + "/1", Since: time.Now(), Worked: time.Now(), Address: strings.Replace(secure.URL, "127.0.0.1", "0.0.0.0", 1)})
	t.Setenv("NOMAD_CACERT", "")
	t.Setenv("NOMAD_SKIP_VERIFY", "true")
	if _, _, said := c.does("queue", "-token", "secret"); !strings.Contains(said, "give the CA of the agent's certificate (NOMAD_CACERT), without NOMAD_SKIP_VERIFY") {
		t.Errorf("a published address, not verified: %s", said)
	}
	if _, _, said := c.does("queue", "-pal-address", "ftp://127.0.0.1"); !strings.Contains(said, "is not a URL; example: http://127.0.0.1:8090") {
		t.Errorf("ftp: %s", said)
	}
}
