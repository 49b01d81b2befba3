// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package heartbeat

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Warnings holds problems that do not keep the agent from working, but that operators should fix.
// Warnings is safe for concurrent use.
type Warnings struct {
	mu     sync.Mutex
	config string
	// certificates and token are the agent's credentials that expire.
	certificates, token []Credential
	// accounts is the reason why the agent does not write the history, or "" if the agent writes
	// the history.
	accounts string
	own      string    // this agent's name
	other    string    // the name of another agent that was active at the same time
	seen     time.Time // when both agents were last active
	// unwritten is the error of the last attempt to write a heartbeat, or nil if it succeeded.
	// written is the time of the last success.
	unwritten error
	written   time.Time
}

// beaten records the result of writing a heartbeat.
func (w *Warnings) beaten(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwritten = err
	if err == nil {
		w.written = now
	}
}

// rested records that this agent has stopped writing heartbeats.
func (w *Warnings) rested() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwritten, w.written = nil, time.Time{}
}

// Unwritten returns the error of the last attempt to write a heartbeat, or nil if it succeeded.
// silent reports whether no write has succeeded for a while, so that commands report no active
// placer.
func (w *Warnings) Unwritten(now time.Time) (silent bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unwritten != nil && now.Sub(w.written) > heartbeatLapses, w.unwritten
}

// Configured records an error in the configuration on disk. err is nil if there is no error.
func (w *Warnings) Configured(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.config = ""
	if err != nil {
		w.config = fmt.Sprintf("the agent's new configuration is invalid, so the old one is still in force: %v", err)
	}
}

// Credential is a certificate or a token that the agent presents to others and that expires.
type Credential struct {
	Name        string
	From, Until time.Time
}

// renewBefore is how long before a credential expires the agent warns. The agent warns about a
// short-lived credential in the last fifth of the credential's life.
const renewBefore = 14 * 24 * time.Hour

// warning returns a message if the credential has expired or expires soon, and "" otherwise.
func (c Credential) warning(now time.Time) string {
	expires := "expires"
	left := c.Until.Sub(now)
	switch {
	case left <= 0:
		expires = "expired"
	case left >= min(renewBefore, c.Until.Sub(c.From)/5):
		return ""
	}
	return fmt.Sprintf("the agent's %s %s on %s: renew it, and reload the agent", c.Name, expires, reason.Moment(c.Until))
}

// Certificates replaces the list of the agent's certificates.
func (w *Warnings) Certificates(all []Credential) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.certificates = all
}

// Token replaces the agent's token. token is nil if the token never expires, or if this is unknown.
func (w *Warnings) Token(token []Credential) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token = token
}

// Accounts records the error that keeps the agent from writing the history. err is nil if the agent
// writes the history.
func (w *Warnings) Accounts(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accounts = ""
	if err != nil {
		w.accounts = fmt.Sprintf("cannot write the history; runs that end in the meantime are written later, if Nomad still has them: %v", err)
	}
}

// beside records that another agent was active at the same time as this agent.
func (w *Warnings) beside(own, other string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = own
	w.other = other
	w.seen = now
}

// All returns the current warnings.
func (w *Warnings) All(now time.Time) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.config != "" {
		all = append(all, w.config)
	}
	for _, c := range slices.Concat(w.certificates, w.token) {
		text := c.warning(now)
		if text != "" {
			all = append(all, text)
		}
	}
	if w.accounts != "" {
		all = append(all, w.accounts)
	}
	if w.other != "" && now.Sub(w.seen) <= heartbeatLapses {
		all = append(all, fmt.Sprintf("two agents, %s and %s, are active and disturb each other: stop one of the two, or give both the same block high_availability { enabled = true }", w.own, w.other))
	}
	return all
}
