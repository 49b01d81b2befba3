// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	"github.com/nomad-pal/nomad-pal/placer/accounting/accountingtest"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// accounts is the history that recorders write from the placers' snapshots, in a store that all
// placers share, as agents share a PostgreSQL. It also has what really ran.
type accounts struct {
	mu       sync.Mutex
	runs     map[string]palapi.Run
	allocs   map[string]accounting.Alloc
	ran      map[string]nomadtest.Member // members with GPUs
	ended    map[string]time.Time        // ends by Nomad's clock
	heard    map[string]time.Time        // ends by the test's clock
	recorder *accounting.Recorder
	of       string // who wrote last; "": the next writer first reads what is stored
	wrong    []string
	database *troubledDatabase // a database with the same content; nil: none
}

// troubledDatabase is a database that is unavailable now and then, and to which some writes fail.
type troubledDatabase struct {
	file           string // path or address
	random         *rand.Rand
	db             *accounting.DB
	away           int // number of snapshots for which it stays unavailable
	well           bool
	failed, opened int
	// begin and end cause and end a further trouble; nil: none. lasts is the number of snapshots
	// for which it still lasts.
	begin, end func() error
	lasts      int
	troubled   int
	aside      []string // corrupt files that were set aside
}

// open opens the database, unless it is unavailable.
func (d *troubledDatabase) open(ctx context.Context) (ok bool, err error) {
	if d.lasts > 0 {
		if d.lasts--; d.lasts == 0 {
			if err := d.end(); err != nil {
				return false, err
			}
		}
	}
	if d.away > 0 {
		d.away--
		return false, nil
	}
	if d.db == nil {
		d.opened++
		var aside string
		if d.db, aside, err = accounting.Open(ctx, d.file); aside != "" {
			d.aside = append(d.aside, aside)
		}
		if err != nil && d.lasts > 0 {
			return false, nil
		}
	}
	return err == nil, err
}

// trouble causes the further trouble.
func (d *troubledDatabase) trouble() error {
	d.troubled++
	err := d.db.Close()
	d.db = nil
	if d.end != nil {
		d.lasts = 1 + d.random.IntN(60)
	}
	return errors.Join(err, d.begin())
}

// over ends all trouble for good.
func (d *troubledDatabase) over() {
	d.away, d.lasts, d.begin, d.well = 0, min(d.lasts, 1), nil, true
}

// write stores a batch, or fails: before the write, or in the middle of it.
func (d *troubledDatabase) write(ctx context.Context, b accounting.Batch) error {
	brief, cancel := context.WithCancel(ctx)
	defer cancel()
	switch n := d.random.IntN(20); {
	case d.well:
	case n == 0:
		d.away = d.random.IntN(60)
		cancel()
	case n == 1: // an allocation without a time cannot be written, and then nothing of the batch must be kept
		b.Allocs = append(slices.Clone(b.Allocs), accounting.Alloc{ID: "broken\x00", GPUs: []string{"x"}, Held: math.NaN()})
	}
	err := d.db.Write(brief, b)
	if err != nil {
		d.failed++
		err = errors.Join(err, d.db.Close())
		d.db = nil
	}
	return err
}

func newAccounts() *accounts {
	return &accounts{runs: map[string]palapi.Run{}, allocs: map[string]accounting.Alloc{}, ran: map[string]nomadtest.Member{}, ended: map[string]time.Time{}, heard: map[string]time.Time{}}
}

// picture records what a placer's snapshot shows. If another placer wrote last, the recorder first
// reads what is stored.
func (a *accounts) picture(name string, s *query.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.database; d != nil {
		before := len(d.aside)
		ok, err := d.open(context.Background())
		if err == nil && ok && d.begin != nil && d.lasts == 0 && d.random.IntN(50) == 0 {
			ok, err = false, d.trouble()
		}
		if err != nil {
			a.wrong = append(a.wrong, err.Error())
			return
		} else if !ok {
			a.of = ""
			return
		}
		if len(d.aside) > before { // forget what was in the corrupt file
			a.of, a.runs, a.allocs = "", map[string]palapi.Run{}, map[string]accounting.Alloc{}
		}
	}
	if name != a.of {
		runs := slices.DeleteFunc(slices.Collect(maps.Values(a.runs)), func(r palapi.Run) bool { return !r.Ended.IsZero() })
		live := slices.DeleteFunc(slices.Collect(maps.Values(a.allocs)), func(l accounting.Alloc) bool { return !l.To.IsZero() })
		a.recorder, a.of = accounting.NewRecorder(runs, live, 0), name
	}
	missing := a.recorder.Missing(s.Model())
	var last []palapi.Run
	for _, k := range missing {
		last = append(last, a.lastRuns(k)...)
	}
	a.recorder.Know(missing, last)
	var b accounting.Batch
	s.Read(func(m *model.Model) { b = a.recorder.Look(m, nil) })
	if d := a.database; d != nil && !b.Empty() && d.write(context.Background(), b) != nil {
		a.of = ""
		return
	}
	for _, r := range b.Runs {
		k := fmt.Sprint(r.Namespace, "/", r.Job, " of ", r.Submitted.UnixMilli())
		if was, ok := a.runs[k]; ok && !was.Ended.IsZero() {
			a.wrong = append(a.wrong, fmt.Sprintf("run %s has ended and is written again: %+v, was %+v", k, r, was))
		}
		a.runs[k] = r
	}
	for _, l := range b.Allocs {
		if !a.allocs[l.ID].To.IsZero() { // as in the database, what a restarted recorder writes again counts once
			continue
		}
		a.allocs[l.ID] = l
	}
	a.recorder.Written(b, s.Model())
}

func (a *accounts) lastRuns(k cluster.JobKey) (last []palapi.Run) {
	for _, r := range a.runs {
		if r.Namespace == k.Namespace && r.Job == k.ID && (len(last) == 0 || r.Submitted.After(last[0].Submitted)) {
			last = []palapi.Run{r}
		}
	}
	return last
}

func (a *accounts) observer() nomadtest.Observer {
	note := func(m nomadtest.Member) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(m.GPUs) > 0 {
			a.ran[m.ID] = m
		}
	}
	return nomadtest.Observer{Placed: note, Ended: func(m nomadtest.Member) {
		note(m)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended[m.ID], a.heard[m.ID] = m.At, time.Now()
	}}
}

// compare returns the differences between the history and what really ran. It accepts that an
// allocation is missing if Nomad has forgotten it, because it may have started and ended while no
// placer looked. It does not compare ends if the clock was set back.
func (a *accounts) compare(has map[string]bool) (wrong []string, gpuTime time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wrong = a.wrong
	for id, m := range a.ran {
		w, ok := a.allocs[id]
		end := a.ended[id]
		if !end.IsZero() && !m.Terminated.IsZero() { // Nomad learns later what ended on a disconnected machine
			end = m.Terminated
		}
		switch {
		case !ok && !has[id]:
		case ok && w.Status == string(palapi.RunUnknown) || !end.IsZero() && end.Before(m.CreatedAt):
		case !ok:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s, placed at %v, ended at %v, is not recorded", id, m.Job, m.CreatedAt, end))
		case !w.From.Equal(m.CreatedAt.Truncate(time.Millisecond)) || len(w.GPUs) != len(m.GPUs):
			wrong = append(wrong, fmt.Sprintf("allocation %s had %v from %v on, recorded as %+v", id, m.GPUs, m.CreatedAt, w))
		case end.IsZero() != w.To.IsZero() && time.Since(a.heard[id]) > 10*time.Second:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s ended at %v, recorded as %+v", id, m.Job, end, w))
		case !end.IsZero() && w.Status == "complete" && w.To.Sub(end).Abs() > time.Second:
			wrong = append(wrong, fmt.Sprintf("allocation %s of %s ended at %v, recorded as %v", id, m.Job, end, w.To))
		}
		if ok && !w.To.IsZero() {
			gpuTime += w.To.Sub(w.From) * time.Duration(len(w.GPUs))
		}
	}
	return wrong, gpuTime
}

// compareDatabase returns the differences between the database and what was written to it.
func (a *accounts) compareDatabase(ctx context.Context) (wrong []string) {
	db, _, err := accounting.Open(ctx, a.database.file)
	if err != nil {
		return []string{err.Error()}
	}
	defer db.Close()
	usage, err := db.Usage(ctx, accounting.Filter{}, []string{"namespace"}, time.Now())
	if err != nil {
		return []string{err.Error()}
	}
	_, live, err := db.Open(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, l := range live {
		if was := a.allocs[l.ID]; was.ID == "" || !was.To.IsZero() || !was.From.Equal(l.From) || was.Held != l.Held {
			wrong = append(wrong, fmt.Sprintf("the database has allocation %+v, written as %+v", l, was))
		}
	}
	hours, ended := 0.0, int64(0)
	for _, u := range usage {
		hours, ended = hours+u.GPUHours, ended+u.Runs
	}
	for _, l := range a.allocs {
		if l.To.IsZero() {
			l.To = time.Now()
		}
		hours -= l.To.Sub(l.From).Hours() * l.Held
	}
	for _, r := range a.runs {
		if !r.Ended.IsZero() {
			ended--
		}
		if r.Took > 0 && (r.Whole.Before(r.Started) || time.Duration(r.Took) > r.Ended.Sub(r.Started)) {
			wrong = append(wrong, fmt.Sprintf("the run took longer than it existed: %+v", r))
		}
	}
	if math.Abs(hours)*3600 > 1 || ended != 0 {
		wrong = append(wrong, fmt.Sprintf("the database has %v GPU hours and %d ended runs more than were written", hours, ended))
	}
	return wrong
}

// troubles are databases with a further trouble.
var troubles = map[string]func(t *testing.T, d *troubledDatabase){
	"full disk": func(t *testing.T, d *troubledDatabase) {
		disk := accountingtest.SmallDisk(t, 64<<20)
		d.file, d.begin, d.end = filepath.Join(disk.Dir, "history.db"), disk.Fill, disk.Free
	},
	"corrupt file": func(_ *testing.T, d *troubledDatabase) {
		d.begin = func() error { return os.WriteFile(d.file, []byte("this is no database"), 0o600) }
	},
	"stopped PostgreSQL": func(t *testing.T, d *troubledDatabase) {
		server := accountingtest.StartPostgres(t)
		d.file, d.begin, d.end = server.Address(), func() error { server.Stop(); return nil }, func() error { server.Start(); return nil }
	},
}

// The sums in a database are those of what ran, although it is unavailable now and then and some
// writes fail. With ACCOUNTS_DAY, the test walks for a day, and once with each of [troubles] (make
// history-check), from the seed ACCOUNTS_SEED on.
func TestAccountsOfATroubledDatabase(t *testing.T) {
	day, names := 4*time.Minute, []string{"", ""}
	if d, err := time.ParseDuration(os.Getenv("ACCOUNTS_DAY")); err == nil {
		day, names = d, append(names, slices.Sorted(maps.Keys(troubles))...)
	}
	first := uint64(100)
	if n, err := strconv.ParseUint(os.Getenv("ACCOUNTS_SEED"), 10, 64); err == nil {
		first = n
	}
	for i, name := range names {
		seed := first + uint64(i) // of the walk and of the placers, so that both use the same limits
		t.Run(cmp.Or(name, fmt.Sprint(i)), func(t *testing.T) {
			book := newAccounts()
			book.database = &troubledDatabase{file: filepath.Join(t.TempDir(), "history.db"), random: rand.New(rand.NewPCG(seed, 50))}
			if name != "" {
				troubles[name](t, book.database)
			}
			Run(t, Options{Seed: seed, Unchecked: true, Partial: 90 * time.Second, Placer: vary(seed), Published: book.picture, Sampled: true}, func(w *World) {
				w.Nomad.Observe(book.observer())
				mix := DefaultMix()
				if name != "" {
					mix.Apart = 10 * time.Second // so that the cluster soon finishes the jobs of half an hour
				}
				rests, late := walkDay(NewWalk(w, mix), day)
				book.mu.Lock()
				book.database.over()
				book.mu.Unlock()
				w.Submit(Gang{Name: "last", Runs: 10 * time.Second}) // so that some placer publishes a snapshot after the last trouble
				w.RunFor(5 * time.Minute)
				if name != "" {
					wrong, _ := book.compare(w.has(t))
					for _, text := range wrong {
						t.Error(text)
					}
				}
				book.mu.Lock()
				defer book.mu.Unlock()
				d := book.database
				if d.db != nil {
					defer d.db.Close()
				}
				for _, text := range append(book.wrong, book.compareDatabase(context.Background())...) {
					t.Error(text)
				}
				if d.failed == 0 || d.opened < 2 || len(book.allocs) == 0 || name != "" && d.troubled == 0 || (name == "corrupt file") != (len(d.aside) > 0) {
					t.Errorf("%d writes failed, it was opened %d times, %d allocations were written, trouble %d times, set aside: %q", d.failed, d.opened, len(book.allocs), d.troubled, d.aside)
				}
				// If jobs are left, each rest takes as long as it may, and a day takes forever.
				if late > rests/2 {
					t.Errorf("jobs were left at the end of %d of %d rests", late, rests)
				}
				t.Logf("seed %d: %d allocations ran, %d runs and %d allocations were written; %d writes failed, opened %d times, trouble %d times, %d files were set aside",
					seed, len(book.ran), len(book.runs), len(book.allocs), d.failed, d.opened, d.troubled, len(d.aside))
			})
		})
	}
}

// walkDay walks for a day and then settles. It also settles after each half hour and removes the
// remaining jobs, because an ever longer list would slow down the test. late is the number of rests
// after which jobs had not ended.
func walkDay(x *Walk, day time.Duration) (rests, late int) {
	for end := time.Now().Add(day); ; x.Disturb() {
		x.Go(min(time.Until(end), 30*time.Minute))
		if rests++; len(x.Settle(40*time.Minute)) > 0 {
			late++
		}
		if !time.Now().Before(end) {
			return rests, late
		}
		for _, k := range x.Nomad.Jobs() { // in the evening, authors purge the remaining jobs, such as those that can never start
			x.try(x.Purge(k))
		}
		x.RunFor(2 * time.Minute)
		x.Nomad.Collect(time.Minute)
	}
}

// has returns the allocations that Nomad knows.
func (w *World) has(t *testing.T) map[string]bool {
	has := map[string]bool{}
	stubs, _, err := w.Author.Allocations().List(&api.QueryOptions{Namespace: api.AllNamespacesNamespace})
	if err != nil {
		t.Fatal(err)
	}
	for _, stub := range stubs {
		has[stub.ID] = true
	}
	return has
}

// The history is what really ran, in spite of restarts and changes of placers, failed requests,
// lost nodes and all that authors may do.
func TestAccounts(t *testing.T) {
	seeds := uint64(6)
	if n, err := strconv.ParseUint(os.Getenv("ACCOUNTS_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	if race.Enabled {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			book := newAccounts()
			Run(t, Options{Seed: seed, Unchecked: true, Partial: 90 * time.Second, Placer: vary(seed), Published: book.picture, Sampled: true}, func(w *World) {
				w.Nomad.Observe(book.observer())
				x := NewWalk(w, DefaultMix())
				x.Go(4 * time.Minute)
				x.Settle(40 * time.Minute)
				w.RunFor(15 * time.Second) // so that the last snapshot shows the end
				wrong, gpuTime := book.compare(w.has(t))
				if len(book.ran) == 0 || gpuTime == 0 {
					t.Error("nothing ran")
				}
				for _, text := range wrong {
					t.Error(text)
				}
			})
		})
	}
}
