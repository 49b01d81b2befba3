// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// History configures where the agent records runs of jobs.
type History struct {
	// Database is the path of an SQLite file, or an address postgres://…
	Database string `hcl:"database"`
	// Retention is how long the agent keeps individual runs, 400 days by default. The agent keeps
	// daily sums forever.
	Retention string `hcl:"retention,optional"`
}

// retention returns how long the agent keeps individual runs.
func (h *History) retention() (time.Duration, error) {
	keep := 400 * 24 * time.Hour
	if h == nil {
		return keep, nil
	}
	if h.Database == "" {
		return keep, errors.New(`history: database = "" is neither a file nor an address`)
	}
	return keep, duration("history: retention", h.Retention, &keep)
}

// Beside returns an error if an agent with this configuration must not run beside the active agent.
// If two agents kept histories in local files, each file would contain only the time of its own
// agent. Two agents on one machine share the file.
func (f File) Beside(active palapi.Activity) error {
	host, _ := os.Hostname() // "" matches no other agent
	if f.History == nil || accounting.IsPostgres(f.History.Database) || !f.HA.on() || !active.Working || active.Host() == host {
		return nil
	}
	return fmt.Errorf("agent %s is active on another machine, and cannot write to the file %q of this machine (history { database }): let all agents share a database postgres://…, or remove the block history", active.Agent, f.History.Database)
}

const (
	// accountEvery is the interval at which the agent writes new snapshots of the placer to the
	// database.
	accountEvery = time.Second
	// accountAgain is the longest pause before a failed database is tried again.
	accountAgain = time.Minute
	pruneEvery   = time.Hour
)

// accounts is the database of the active agent.
type accounts struct {
	db      atomic.Pointer[accounting.DB] // nil while it is not open
	trouble atomic.Pointer[string]        // why the database cannot be opened, read or written; nil or "" if it works
}

// account records runs in the database until ctx ends. h is nil if the agent keeps no history. A
// failure of the database delays no other work of the agent. When the database works again, account
// adds the missing runs, if Nomad still has their jobs.
func (a *Agent) account(ctx context.Context, p *placer.Placer, h *History) {
	if h == nil {
		return
	}
	keep, _ := h.retention() // checked by [File.PlacerConfig]
	k := &bookkeeper{agent: a, placer: p, database: h.Database, keep: keep}
	defer k.close()
	wait := accountEvery
	for ctx.Err() == nil {
		switch err := k.once(ctx); {
		case ctx.Err() != nil:
		case err != nil:
			k.close() // the next try opens the database again, because another agent may have written to it
			wait = min(2*wait, accountAgain)
			a.accountTrouble(err)
		default:
			wait = accountEvery
			a.accountTrouble(nil)
		}
		pause(ctx, wait)
	}
}

// accountTrouble stores and logs why the history cannot be written. err is nil if the history can
// be written.
func (a *Agent) accountTrouble(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := a.accounts.trouble.Swap(&text)
	a.warnings.Accounts(err)
	switch {
	case err != nil && (was == nil || *was != text):
		a.log.Error("cannot write the history; trying again", "error", err)
	case err == nil && was != nil && *was != "":
		a.log.Info("writing the history works again")
	}
}

// bookkeeper writes the snapshots of one placer to the database.
type bookkeeper struct {
	agent    *Agent
	placer   *placer.Placer
	database string
	keep     time.Duration
	db       *accounting.DB
	recorder *accounting.Recorder // while db is nil, the recorder of the closed database
	seen     *query.Snapshot      // the last recorded snapshot
	pruned   time.Time
}

func (k *bookkeeper) close() {
	if k.db == nil {
		return
	}
	k.agent.accounts.db.Store(nil)
	if err := k.db.Close(); err != nil {
		k.agent.log.Warn("cannot close the history", "error", err)
	}
	k.db, k.seen = nil, nil
}

// once opens the database if it is closed, and writes the placer's last snapshot to it.
func (k *bookkeeper) once(ctx context.Context) error {
	if k.db == nil {
		if err := k.open(ctx); err != nil {
			return err
		}
	}
	picture, idle := k.placer.LastPicture(), k.agent.idle.unbooked()
	if picture == nil || picture == k.seen && len(idle) == 0 {
		return nil
	}
	if err := k.write(ctx, picture, idle); err != nil {
		return err
	}
	k.seen = picture
	now := time.Now()
	if now.Sub(k.pruned) > pruneEvery {
		k.pruned = now
		return k.db.Prune(ctx, now.Add(-k.keep))
	}
	return nil
}

func (k *bookkeeper) open(ctx context.Context) error {
	db, aside, err := accounting.Open(ctx, k.database)
	if aside != "" {
		k.agent.log.Error("the history was corrupt and starts empty", "set_aside_as", aside)
	}
	if err != nil {
		return err
	}
	runs, live, err := db.Open(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	was := k.recorder
	k.db, k.recorder = db, accounting.NewRecorder(runs, live, k.keep)
	k.recorder.Continue(was)
	k.agent.accounts.db.Store(db)
	return nil
}

func (k *bookkeeper) write(ctx context.Context, picture *query.Snapshot, idle []accounting.IdleGPU) error {
	m := picture.Model()
	missing := k.recorder.Missing(m)
	last, err := k.db.LastRuns(ctx, missing)
	if err != nil {
		return err
	}
	k.recorder.Know(missing, last)
	var b accounting.Batch
	picture.Read(func(m *model.Model) { b = k.recorder.Look(m, idle) })
	if !b.Empty() {
		if err := k.db.Write(ctx, b); err != nil {
			return err
		}
	}
	k.recorder.Written(b, m)
	k.agent.idle.booked(idle) // booked even if the job that held the GPU is unknown
	return nil
}

// accountsFor returns the database, and the request's filter limited to namespaces that the caller
// may see. If ok is false, accountsFor has already answered the request with an error.
func (s *server) accountsFor(w http.ResponseWriter, r *http.Request) (db *accounting.DB, f accounting.Filter, ok bool) {
	c, ok := s.judged(w, r, (*caller).listsSome)
	if !ok {
		return nil, f, false
	}
	if s.file.History == nil {
		http.Error(w, `this agent keeps no history: its configuration lacks history { database = "…" }`, http.StatusNotImplemented)
		return nil, f, false
	}
	db, err := s.agent.accounts.get()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, f, false
	}
	if f, err = filterOf(r.URL.Query()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, f, false
	}
	names, err := db.Namespaces(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return nil, f, false
	}
	sees, wanted := c.sees(r.Context()), r.URL.Query().Get("namespace")
	f.Namespaces = slices.DeleteFunc(append([]string{}, names...), func(n string) bool {
		return wanted != "" && wanted != "*" && wanted != n || !sees(n)
	})
	return db, f, true
}

// get returns the database. get fails while the database is not open.
func (a *accounts) get() (*accounting.DB, error) {
	db := a.db.Load()
	if db != nil {
		return db, nil
	}
	text := a.trouble.Load()
	if text != nil && *text != "" { // the text may name the database's host
		return nil, errors.New("the history can be neither read nor written; see the agent's log and health")
	}
	return nil, errors.New("the history is not open yet")
}

// filterOf reads a filter from a request's parameters.
func filterOf(q url.Values) (f accounting.Filter, err error) {
	f = accounting.Filter{User: q.Get("user"), Class: q.Get("class"), Model: q.Get("model"), Job: q.Get("job")}
	for _, text := range q["state"] {
		state := palapi.RunState(text)
		if !slices.Contains(palapi.RunStates(), state) {
			return f, fmt.Errorf("state=%q is none of %s", text, commaList(palapi.RunStates()))
		}
		f.States = append(f.States, state)
	}
	for name, to := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := q.Get(name)
		if text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return f, fmt.Errorf("%s=%q is not a time such as 2006-01-02T15:04:05Z", name, text)
			}
		}
	}
	f.Most, err = count(q, "limit")
	return f, err
}

// MostRuns is the maximum number of runs in one answer.
const MostRuns = 100_000

// serveRuns lists runs of jobs, the latest submission first:
//
//	GET /v1/runs?namespace=&user=&class=&model=&state=&job=<beginning>&since=&until=&limit=
func (s *server) serveRuns(w http.ResponseWriter, r *http.Request) {
	db, f, ok := s.accountsFor(w, r)
	if !ok {
		return
	}
	if f.Most == 0 || f.Most > MostRuns {
		f.Most = MostRuns
	}
	runs, err := db.Runs(r.Context(), f)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, runs)
}

// serveSpeed compares runs of the same jobs on fast and on slow GPUs:
//
//	GET /v1/speed?namespace=&user=&class=&model=&since=
func (s *server) serveSpeed(w http.ResponseWriter, r *http.Request) {
	db, f, ok := s.accountsFor(w, r)
	if !ok {
		return
	}
	speed, err := db.Speed(r.Context(), f)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, speed)
}

// serveUsage adds up GPU time and runs, by whole days of UTC:
//
//	GET /v1/usage?by=user,month&namespace=&user=&class=&model=&since=&until=
func (s *server) serveUsage(w http.ResponseWriter, r *http.Request) {
	db, f, ok := s.accountsFor(w, r)
	if !ok {
		return
	}
	var by []string
	text := r.URL.Query().Get("by")
	if text != "" {
		by = strings.Split(text, ",")
	}
	for _, column := range by {
		if !slices.Contains(palapi.UsageColumns(), column) {
			http.Error(w, fmt.Sprintf("by=%q is none of %s", column, commaList(palapi.UsageColumns())), http.StatusBadRequest)
			return
		}
	}
	usage, err := db.Usage(r.Context(), f, by, time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, http.StatusOK, usage)
}
