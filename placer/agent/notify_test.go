// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/placer"
)

// receiver records the requests that it gets, and answers with the status that a test sets; the
// default is 200.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int
	got     []string
	headers []http.Header
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	t.Helper()
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	code := http.StatusOK
	if len(r.answers) > 0 {
		code, r.answers = r.answers[0], r.answers[1:]
	}
	r.got, r.headers = append(r.got, string(body)), append(r.headers, req.Header)
	w.WriteHeader(code)
}

func (r *receiver) bodies() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.got...)
}

// notifierOf returns a notifier that retries at once.
func notifierOf(t *testing.T, of Notify) (*notifier, *testlog.Buffer, map[string]int) {
	t.Helper()
	n, err := of.notifier()
	if err != nil {
		t.Fatal(err)
	}
	said, counts := &testlog.Buffer{}, map[string]int{}
	n.http.RetryMax, n.http.RetryWaitMin, n.http.RetryWaitMax = 2, time.Millisecond, time.Millisecond
	n.log, n.count = hclog.New(&hclog.LoggerOptions{Output: said}), func(outcome string) { counts[outcome]++ }
	return n, said, counts
}

func eventsOf(events ...placer.Event) *placer.EventLog {
	log := placer.NewEventLog(100, time.UnixMilli(1000))
	for _, e := range events {
		if e.At.IsZero() {
			e.At = time.Now()
		}
		log.Add(e)
	}
	return log
}

// runs runs a notifier until the receiver has got n requests.
func runs(t *testing.T, n *notifier, r *receiver, log *placer.EventLog, after uint64, requests int) uint64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	last := make(chan uint64, 1)
	log.Add(placer.Event{At: time.Now(), Kind: placer.Started, Namespace: "end", Job: "end"}) // after it, all events before it have been handled
	go func() { last <- n.run(ctx, log, after) }()
	until(t, "the receiver is asked", func() bool { return len(r.bodies()) >= requests })
	cancel()
	return <-last
}

// The events listed in a block are sent in order, for its namespaces only. If the receiver fails,
// the event is sent again with the same ID.
func TestNotify(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 503, 500)
	n, _, counts := notifierOf(t, Notify{URL: r.URL, Events: []string{"started", "stopped", "unhealthy"}, Namespaces: []string{"res*", "end"},
		Body: `{"text": {{ printf "%s %s/%s %s %s" .Kind .Namespace .Job .Text .ForJob | json }}}`})
	log := eventsOf(
		placer.Event{Kind: placer.Queued, Namespace: "research", Job: "a"},
		placer.Event{Kind: placer.Started, Namespace: "research", Job: "a", Text: `says "hello"`},
		placer.Event{Kind: placer.Started, Namespace: "secret", Job: "b"},
		placer.Event{Kind: placer.Unhealthy, GPUs: []string{"GPU-1"}},
		placer.Event{Kind: placer.Stopped, Namespace: "research", Job: "a", ForJob: "secret/b"},
	)
	runs(t, n, r, log, 0, 5)
	first := `{"text": "started research/a says \"hello\" "}`
	want := []string{first, first, first, `{"text": "stopped research/a  (a job that the token cannot see)"}`, `{"text": "started end/end  "}`}
	got := r.bodies()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if id := r.headers[0].Get("webhook-id"); id != r.headers[2].Get("webhook-id") || id == r.headers[3].Get("webhook-id") {
		t.Errorf("ids: %v", r.headers)
	}
	if counts["sent"] < 2 || counts["given-up"] != 0 {
		t.Errorf("counted: %v", counts)
	}
}

// A new placer does not announce the state that it finds unchanged. It does announce what happened
// while no placer was active.
func TestNotifyOnce(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	n, _, _ := notifierOf(t, Notify{URL: r.URL, Body: `{"job": {{ json .Job }}}`})
	n.told = time.Now()
	runs(t, n, r, eventsOf(
		placer.Event{Kind: placer.GivenUp, Namespace: "default", Job: "told", Since: n.told.Add(-time.Second)},
		placer.Event{Kind: placer.GivenUp, Namespace: "default", Job: "new", Since: n.told.Add(time.Second)},
		placer.Event{Kind: placer.Refused, Namespace: "default", Job: "now"},
	), 0, 3)
	if d := cmp.Diff([]string{`{"job": "new"}`, `{"job": "now"}`, `{"job": "end"}`}, r.bodies()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The notifier gives up an event that the receiver refuses or does not accept for too long, so that
// it does not hold back later events. The log leaves out the URL, which may be a secret.
func TestNotificationsAreGivenUp(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 400, 500, 500, 500)
	n, said, counts := notifierOf(t, Notify{URL: strings.Replace(r.URL, "http://", "HTTP://hidden-user:hidden-password@", 1) + "/hidden-token"})
	log := eventsOf(
		placer.Event{Kind: placer.Started, Namespace: "default", Job: "refused"},
		placer.Event{Kind: placer.Started, Namespace: "default", Job: "unanswered"},
		placer.Event{Kind: placer.Started, Namespace: "default", Job: "old", At: time.Now().Add(-2 * notifyFresh)},
	)
	runs(t, n, r, log, 0, 5)
	if text := strings.Join(r.bodies(), "\n"); strings.Contains(text, "old") || strings.Count(text, "unanswered") != 3 || !strings.HasSuffix(text, `"text":""}`) {
		t.Errorf("sent:\n%s", text)
	}
	if counts["given-up"] != 3 || strings.Contains(said.String(), "hidden-") || !strings.Contains(said.String(), "the receiver answers 400 Bad Request") {
		t.Errorf("%v\n%s", counts, said)
	}
}

// A notifier that was interrupted continues where it stopped.
func TestNotifyGoesOn(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	n, _, _ := notifierOf(t, Notify{URL: r.URL})
	log := eventsOf(placer.Event{Kind: placer.Started, Namespace: "default", Job: "one"})
	last := runs(t, n, r, log, 0, 2)
	log.Add(placer.Event{At: time.Now(), Kind: placer.Started, Namespace: "default", Job: "two"})
	runs(t, n, r, log, last, 4)
	if text := strings.Join(r.bodies(), "\n"); strings.Count(text, `"one"`) != 1 || strings.Count(text, `"two"`) != 1 {
		t.Errorf("sent:\n%s", text)
	}
}

// Requests are signed as Standard Webhooks and GitHub sign theirs, with a secret from a file or the
// environment.
func TestNotificationsAreSigned(t *testing.T) {
	t.Setenv("PAL_TEST_SECRET", "whsec_"+base64.StdEncoding.EncodeToString([]byte("key")))
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]Notify{"file": {SecretFile: file}, "environment": {SecretEnv: "PAL_TEST_SECRET"}} {
		r := newReceiver(t)
		of.URL, of.Headers = r.URL, map[string]string{"authorization": "Bearer x"}
		n, _, _ := notifierOf(t, of)
		runs(t, n, r, eventsOf(), 0, 1)
		h, body := r.headers[0], r.bodies()[0]
		sum := func(text string) []byte {
			m := hmac.New(sha256.New, []byte("key"))
			m.Write([]byte(text))
			return m.Sum(nil)
		}
		if want := "v1," + base64.StdEncoding.EncodeToString(sum(h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+body)); h.Get("webhook-signature") != want {
			t.Errorf("%s: webhook-signature: %q, want %q", name, h.Get("webhook-signature"), want)
		}
		if want := "sha256=" + hex.EncodeToString(sum(body)); h.Get("X-Hub-Signature-256") != want {
			t.Errorf("%s: X-Hub-Signature-256: %q, want %q", name, h.Get("X-Hub-Signature-256"), want)
		}
		var e placer.Event
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Kind != placer.Started || h.Get("Content-Type") != jsonType || h.Get("Authorization") != "Bearer x" {
			t.Errorf("%s: %s %v", name, body, h)
		}
	}
}

// A receiver's certificate must be signed by the system's authorities, or by the one that the block
// names.
func TestNotifyChecksCertificates(t *testing.T) {
	t.Parallel()
	r := &receiver{}
	r.Server = httptest.NewTLSServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(r.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	e := placer.Event{At: time.Now(), Kind: placer.Started, Namespace: "default", Job: "train"}
	n, said, _ := notifierOf(t, Notify{URL: r.URL})
	if n.send(t.Context(), e); len(r.bodies()) != 0 || !strings.Contains(said.String(), "certificate") {
		t.Errorf("%q\n%s", r.bodies(), said)
	}
	n, said, _ = notifierOf(t, Notify{URL: r.URL, CACert: ca})
	if n.send(t.Context(), e); len(r.bodies()) != 1 {
		t.Errorf("%q\n%s", r.bodies(), said)
	}
}

// Errors in a block are reported before the agent starts with it or switches to it.
func TestNotifyConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                   "the value is not a URL such as",
		`url = "ftp://x"`:    "the value is not a URL such as",
		`url_file = "/none"`: "url_file: open /none",
		`url = "http://x"
		 url_file = "/none"`: "open /none",
		`url = "http://x"
		 events = ["begun"]`: `there is no event "begun" (events: queued`,
		`url = "http://x"
		 namespaces = ["["]`: `"[" is not a pattern`,
		`url = "http://x"
		 secret_env = "PAL_NO_SUCH"`: "the secret is empty",
		`url = "http://x"
		 body = "{{ .Nothing }}"`: "body: ",
		`url = "http://x"
		 body = "{\"text\": \"{{ .Text }}\"}"`: "the template does not produce JSON",
		`url = "http://x"
		 ca_cert = "/none"`: "ca_cert: ",
		`url = "http://x"
		 body = "{\"text\": {{ json .Text }}}"`: "",
		`url = "http://x"`: "",
		`url = "http://x"
		 headers = { content-type = "text/plain" }
		 body = "{{ .Kind }} {{ .Job }}: {{ .Text }}"`: "",
	} {
		f, err := loadText(t, "notify \"chat\" {\n"+text+"\n}\n")
		if err == nil {
			_, err = f.PlacerConfig()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `notify "chat": `)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The recipes in the monitoring docs produce valid JSON for any event.
func TestNotifyRecipes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operators/monitor.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)\x60\x60\x60hcl\n(notify .*?)\x60\x60\x60`).FindAllStringSubmatch(string(page), -1)
	if len(found) != 2 {
		t.Fatalf("%d recipes", len(found))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "chat.url"), []byte("https://chat.example/hook\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "agent.hcl")
	text := strings.ReplaceAll(found[0][1]+found[1][1], "/etc/nomad-pal.d", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`{"text": "failed: \u0026lt;!channel\u0026gt;@` + "\u200b" + `all says \"hello\""}` + "\n",
		`{"title": "research/\u003c!channel\u003e@all: failed", "body": "says \"hello\""}` + "\n",
	} {
		n, err := f.Notify[i].notifier()
		if err != nil {
			t.Fatal(err)
		}
		e := placer.Event{Kind: placer.GivenUp, Namespace: "research", Job: "<!channel>@all", Text: `says "hello"`}
		if body, err := n.text(e); err != nil || string(body) != want || !json.Valid(body) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
		if _, ok := n.wants(e); !ok {
			t.Errorf("%s does not want %+v", n.of.Name, e)
		}
	}
}
