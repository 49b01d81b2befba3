// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/version"
	"github.com/nomad-pal/nomad-pal/placer"
)

// Notify configures a webhook for events of the placer.
type Notify struct {
	Name       string            `hcl:"name,label"`
	URL        string            `hcl:"url,optional"`
	URLFile    string            `hcl:"url_file,optional"`
	Events     []string          `hcl:"events,optional"`
	Namespaces []string          `hcl:"namespaces,optional"`
	SecretFile string            `hcl:"secret_file,optional"`
	SecretEnv  string            `hcl:"secret_env,optional"`
	Body       string            `hcl:"body,optional"`
	Headers    map[string]string `hcl:"headers,optional"`
	CACert     string            `hcl:"ca_cert,optional"`
}

const (
	// notifyWithin is the time limit of one request.
	notifyWithin = 15 * time.Second
	// notifyFresh is the maximum age of an event when it is sent. Older events, which had to wait
	// because the receiver did not answer, are no longer useful.
	notifyFresh = time.Hour
)

// notifier sends the events of one block.
type notifier struct {
	log    hclog.Logger
	of     Notify
	kinds  []placer.EventKind
	url    string
	secret []byte
	body   *template.Template
	http   *retryablehttp.Client
	count  func(outcome string)
	// told is the time at which an earlier placer was last active. That placer sent the events of
	// all states that began before told.
	told time.Time
}

// notifiers returns the notifiers of a configuration, or an error if a block is invalid.
func (f File) notifiers() (all []*notifier, err error) {
	names := map[string]bool{}
	for _, of := range f.Notify {
		n, err := of.notifier()
		if err == nil && names[of.Name] {
			err = errors.New("the name is used twice")
		}
		if err != nil {
			return nil, fmt.Errorf("notify %q: %w", of.Name, err)
		}
		names[of.Name] = true
		all = append(all, n)
	}
	return all, nil
}

// notifier returns the block's notifier. notifier checks the block and reads its files.
func (of Notify) notifier() (*notifier, error) {
	n := &notifier{of: of, kinds: placer.NotifiedKinds}
	if err := n.readFilters(); err != nil {
		return nil, err
	}
	if err := n.readAddress(); err != nil {
		return nil, err
	}
	if err := n.readSecret(); err != nil {
		return nil, err
	}
	var err error
	if n.body, err = template.New("body").Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON, "chat": forChat}).Parse(of.Body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	sample := placer.Event{ID: 1, At: time.Unix(0, 0), Kind: placer.Started, Namespace: "default", Job: `"train"`, Text: `text with "quotes"`}
	text, err := n.text(sample)
	if err == nil && n.contentType() == jsonType && !json.Valid(text) {
		err = fmt.Errorf("the template does not produce JSON, but %s: write texts as {{ json .Text }}, or set headers = { Content-Type = ... }", text)
	}
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	n.http = retryablehttp.NewClient()
	n.http.Logger, n.http.HTTPClient.Timeout = nil, notifyWithin
	n.http.RetryMax, n.http.RetryWaitMin, n.http.RetryWaitMax = 10, time.Second, 5*time.Minute
	if of.CACert != "" {
		n.http.HTTPClient.Transport.(*http.Transport).TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if err := api.ConfigureTLS(n.http.HTTPClient, &api.TLSConfig{CACert: of.CACert}); err != nil {
			return nil, fmt.Errorf("ca_cert: %w", err)
		}
	}
	return n, nil
}

// forChat returns a text that a chat shows as it is. Authors choose the names of jobs, so a name
// could otherwise mention a whole channel, or show a link with a false label.
func forChat(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b").Replace(text)
}

func asJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

func (n *notifier) readFilters() error {
	if n.of.Events != nil {
		n.kinds = nil
	}
	for _, name := range n.of.Events {
		kind := placer.EventKind(name)
		if !slices.Contains(placer.EventKinds, kind) {
			return fmt.Errorf("events: there is no event %q (events: %s)", name, commaList(placer.EventKinds))
		}
		n.kinds = append(n.kinds, kind)
	}
	for _, pattern := range n.of.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return fmt.Errorf("namespaces: %q is not a pattern", pattern)
		}
	}
	return nil
}

func (n *notifier) readAddress() error {
	n.url = n.of.URL
	if n.of.URLFile != "" {
		text, err := os.ReadFile(n.of.URLFile)
		if err != nil {
			return fmt.Errorf("url_file: %w", err)
		}
		n.url = strings.TrimSpace(string(text))
	}
	u, err := url.Parse(n.url)
	switch {
	case n.of.URL != "" && n.of.URLFile != "":
		return errors.New("url and url_file are both set")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "": // no URL in the error, because it may be a secret
		return errors.New("url: the value is not a URL such as https://hooks.example.com/pal")
	}
	return nil
}

func (n *notifier) readSecret() error {
	var text string
	switch {
	case n.of.SecretFile != "" && n.of.SecretEnv != "":
		return errors.New("secret_file and secret_env are both set")
	case n.of.SecretFile != "":
		file, err := os.ReadFile(n.of.SecretFile)
		if err != nil {
			return fmt.Errorf("secret_file: %w", err)
		}
		text = strings.TrimSpace(string(file))
	case n.of.SecretEnv != "":
		text = os.Getenv(n.of.SecretEnv)
	default:
		return nil
	}
	if text == "" {
		return errors.New("the secret is empty")
	}
	n.secret = []byte(text)
	if encoded, ok := strings.CutPrefix(text, "whsec_"); ok { // the format of Standard Webhooks
		var err error
		if n.secret, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return errors.New("the secret begins with whsec_, but the rest is not base64")
		}
	}
	return nil
}

const jsonType = "application/json"

func (n *notifier) contentType() string {
	for name, value := range n.of.Headers {
		if http.CanonicalHeaderKey(name) == "Content-Type" {
			return value
		}
	}
	return jsonType
}

// text returns the request body for an event.
func (n *notifier) text(e placer.Event) ([]byte, error) {
	if n.of.Body == "" {
		return json.Marshal(e)
	}
	var b bytes.Buffer
	err := n.body.Execute(&b, e)
	return b.Bytes(), err
}

// wants reports whether to send an event, and returns the event without names that the receiver's
// readers may not see. A block with namespaces gets no events about GPUs, which belong to no
// namespace.
func (n *notifier) wants(e placer.Event) (placer.Event, bool) {
	if !slices.Contains(n.kinds, e.Kind) || !e.Since.IsZero() && e.Since.Before(n.told) {
		return e, false
	}
	if len(n.of.Namespaces) == 0 {
		return e, true
	}
	sees := func(namespace string) bool {
		return slices.ContainsFunc(n.of.Namespaces, func(pattern string) bool { ok, _ := path.Match(pattern, namespace); return ok })
	}
	return e.RedactedFor(sees, func() bool { return false })
}

// run sends the events after the given ID until ctx ends. run returns the ID of the last event that
// it has sent, given up on or skipped.
func (n *notifier) run(ctx context.Context, log *placer.EventLog, after uint64) uint64 {
	for {
		events, more := log.After(after)
		if len(events) > 0 && after > 0 && events[0].ID > after+1 {
			n.log.Warn("events come faster than the receiver accepts them; some are dropped", "notify", n.of.Name, "lost", events[0].ID-after-1)
		}
		for _, e := range events {
			if wanted, ok := n.wants(e); ok {
				n.send(ctx, wanted)
			}
			if ctx.Err() != nil {
				return after
			}
			after = e.ID
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return after
		}
	}
}

// send sends an event, with retries for about a quarter of an hour.
func (n *notifier) send(ctx context.Context, e placer.Event) {
	err := errors.New("the receiver has not answered for too long")
	if time.Since(e.At) < notifyFresh {
		err = n.post(ctx, e)
	}
	switch {
	case ctx.Err() != nil: // run sends the event again under the next configuration
	case err != nil:
		n.count("given-up")
		n.log.Warn("gave up sending a notification", "notify", n.of.Name, "event", e.Kind, "id", e.ID, "because", hidden(err))
	default:
		n.count("sent")
	}
}

// addresses matches URLs in errors. An error can contain a changed URL: retryablehttp replaces the
// password, and net/url changes the case of the scheme.
var addresses = regexp.MustCompile(`[a-zA-Z]+://[^\s"]*`)

// hidden returns an error's text without the URL, which may be a secret.
func hidden(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return addresses.ReplaceAllString(err.Error(), "its URL")
}

func (n *notifier) post(ctx context.Context, e placer.Event) error {
	body, err := n.text(e)
	if err != nil {
		return err
	}
	r, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, n.url, body)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "nomad-pal/"+version.Number)
	r.Header.Set("Content-Type", n.contentType())
	for name, value := range n.of.Headers {
		r.Header.Set(name, value)
	}
	n.sign(r.Header, strconv.FormatUint(e.ID, 10), time.Now(), body)
	resp, err := n.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("the receiver answers %s", resp.Status)
	}
	return nil
}

// sign adds the headers of Standard Webhooks, and the body's signature in GitHub's format.
func (n *notifier) sign(h http.Header, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	if n.secret == nil {
		return
	}
	sum := func(parts ...[]byte) []byte {
		m := hmac.New(sha256.New, n.secret)
		m.Write(bytes.Join(parts, []byte(".")))
		return m.Sum(nil)
	}
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(sum([]byte(id), []byte(stamp), body)))
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum(body)))
}
