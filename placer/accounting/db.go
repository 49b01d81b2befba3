// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// DB is a database with accounts. It is safe for concurrent use, also by several agents if it is
// PostgreSQL.
type DB struct {
	sql      *sql.DB
	postgres bool
}

// IsPostgres reports whether a database is named by an address, not by a file.
func IsPostgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// Open opens a database, makes it if it is not there, and brings it to the present form. database
// is a file for SQLite or an address postgres://… A file that SQLite finds corrupt is renamed; then
// aside is its new name, and the database starts empty.
func Open(ctx context.Context, database string) (db *DB, aside string, err error) {
	if IsPostgres(database) {
		db, err = open(ctx, "pgx", database)
		return db, "", err
	}
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		return nil, "", fmt.Errorf("making the directory of the database: %w", err)
	}
	db, err = openFile(ctx, database)
	if !corrupt(err) {
		return db, "", err
	}
	aside = database + time.Now().UTC().Format(".corrupt-20060102T150405Z")
	if err := os.Rename(database, aside); err != nil {
		return nil, "", fmt.Errorf("setting a corrupt database aside: %w", err)
	}
	for _, beside := range []string{"-wal", "-shm"} { // of the corrupt one
		if err := os.Rename(database+beside, aside+beside); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, aside, fmt.Errorf("setting a corrupt database aside: %w", err)
		}
	}
	db, err = openFile(ctx, database)
	return db, aside, err
}

// openFile opens a file of SQLite, and has SQLite check it.
func openFile(ctx context.Context, file string) (*DB, error) {
	db, err := open(ctx, "sqlite", "file:"+file+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	var found string
	if err := db.sql.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil || found != "ok" {
		return nil, errors.Join(fmt.Errorf("checking %s: %w", file, cmp.Or(err, error(errCorrupt{found}))), db.Close())
	}
	return db, nil
}

// errCorrupt is what SQLite's check found.
type errCorrupt struct{ found string }

func (e errCorrupt) Error() string { return "the file is corrupt: " + e.found }

func corrupt(err error) bool {
	if _, ok := errors.AsType[errCorrupt](err); ok {
		return true
	}
	of, ok := errors.AsType[*sqlite.Error](err)
	return ok && (of.Code()&0xff == sqlite3.SQLITE_CORRUPT || of.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

func open(ctx context.Context, driver, source string) (*DB, error) {
	pool, err := sql.Open(driver, source)
	if err != nil {
		return nil, fmt.Errorf("opening the accounting database: %w", err)
	}
	pool.SetMaxOpenConns(4)
	db := &DB{sql: pool, postgres: driver == "pgx"}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the accounting database: %w", err), pool.Close())
	}
	return db, nil
}

// Close closes it.
func (db *DB) Close() error { return db.sql.Close() }

// migrate applies what is missing, in one transaction.
func (db *DB) migrate(ctx context.Context) error {
	return db.transact(ctx, func(tx tx) error {
		if err := tx.exec("CREATE TABLE IF NOT EXISTS version (applied BIGINT NOT NULL)"); err != nil {
			return err
		}
		if db.postgres { // agents that begin together
			if err := tx.exec("LOCK TABLE version IN EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		applied := 0
		err := tx.QueryRowContext(ctx, "SELECT applied FROM version").Scan(&applied)
		if errors.Is(err, sql.ErrNoRows) {
			err = tx.exec("INSERT INTO version VALUES (0)")
		}
		if err != nil {
			return err
		}
		if applied > len(migrations) {
			return fmt.Errorf("it is of a later version of nomad-pal (form %d; this one knows %d)", applied, len(migrations))
		}
		for ; applied < len(migrations); applied++ {
			for statement := range strings.SplitSeq(migrations[applied], ";\n") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if err := tx.exec(statement); err != nil {
					return fmt.Errorf("form %d: %w", applied+1, err)
				}
			}
		}
		return tx.exec("UPDATE version SET applied = ?", applied)
	})
}

// tx is a transaction, with ? for arguments in both dialects.
type tx struct {
	*sql.Tx
	ctx      context.Context
	postgres bool
}

func (t tx) exec(statement string, args ...any) error {
	_, err := t.ExecContext(t.ctx, dialect(statement, t.postgres), args...)
	return err
}

// dialect writes $1, $2, … for each ?.
func dialect(statement string, postgres bool) string {
	if !postgres {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, c := range statement {
		if c != '?' {
			b.WriteRune(c)
			continue
		}
		n++
		fmt.Fprintf(&b, "$%d", n)
	}
	return b.String()
}

func (db *DB) transact(ctx context.Context, do func(tx) error) error {
	t, err := db.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx{t, ctx, db.postgres}); err != nil {
		return errors.Join(err, ignoreDone(t.Rollback()))
	}
	return t.Commit()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Write stores a batch, all of it or nothing.
func (db *DB) Write(ctx context.Context, b Batch) error {
	err := db.transact(ctx, func(tx tx) error {
		days := map[dayKey]sums{}
		for _, r := range b.Runs {
			if err := tx.run(r, days); err != nil {
				return fmt.Errorf("run of %s/%s: %w", r.Namespace, r.Job, err)
			}
		}
		for _, a := range b.Allocs {
			if err := tx.alloc(a, days); err != nil {
				return fmt.Errorf("allocation %s: %w", a.ID, err)
			}
		}
		return tx.days(days)
	})
	if err != nil {
		return fmt.Errorf("writing accounts: %w", err)
	}
	return nil
}

// ended is when a row ended, as it is stored; 0: it has not, or is not there.
func (t tx) ended(statement string, args ...any) (ended int64, err error) {
	err = t.QueryRowContext(t.ctx, dialect(statement, t.postgres), args...).Scan(&ended)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return ended, err
}

// run stores a run, and counts it in its day once it has ended.
func (t tx) run(r Run, days map[dayKey]sums) error {
	was, err := t.ended("SELECT ended FROM run WHERE namespace = ? AND job = ? AND submitted = ?", r.Namespace, r.Job, stored(r.Submitted))
	if err != nil || was > 0 {
		return err
	}
	if !r.Ended.IsZero() {
		s := sums{runs: 1, waited: time.Duration(r.Waited)}
		switch r.State {
		case Complete:
			s.complete = 1
		case Failed:
			s.failed = 1
		case Stopped:
			s.stopped = 1
		}
		days[dayKey{dayOf(r.Ended), r.Namespace, r.User, r.Class, r.Model}] = days[dayKey{dayOf(r.Ended), r.Namespace, r.User, r.Class, r.Model}].plus(s)
	}
	return t.exec(`INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (namespace, job, submitted) DO UPDATE SET username = excluded.username, class = excluded.class, model = excluded.model,
		gpus = excluded.gpus, state = excluded.state, reason = excluded.reason, started = excluded.started, whole = excluded.whole,
		ended = excluded.ended, waited = excluded.waited, predicted = excluded.predicted, packed = excluded.packed`,
		r.Namespace, r.Job, stored(r.Submitted), r.User, r.Class, r.Model, r.GPUs, string(r.State), r.Reason,
		stored(r.Started), stored(r.Whole), stored(r.Ended), time.Duration(r.Waited).Milliseconds(), r.Predicted, r.Packed)
}

// alloc stores an allocation, and adds its GPU time to its days once it has ended.
func (t tx) alloc(a Alloc, days map[dayKey]sums) error {
	was, err := t.ended("SELECT ended FROM alloc WHERE id = ?", a.ID)
	if err != nil || was > 0 {
		return err
	}
	if !a.To.IsZero() {
		a.addTo(days, time.Time{}, a.To)
	}
	return t.exec(`INSERT INTO alloc VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET submitted = excluded.submitted, username = excluded.username, class = excluded.class,
		model = excluded.model, ended = excluded.ended, status = excluded.status, vain = excluded.vain, predicted = excluded.predicted,
		packed = excluded.packed`,
		a.ID, a.Namespace, a.Job, stored(a.Submitted), a.User, a.Class, a.Node, a.Model, strings.Join(a.GPUs, ","),
		stored(a.From), stored(a.To), a.Status, stored(a.Vain), a.Predicted, a.Packed)
}

func (t tx) days(days map[dayKey]sums) error {
	for k, s := range days {
		err := t.exec(`INSERT INTO day VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (day, namespace, username, class, model) DO UPDATE SET gpu_ms = day.gpu_ms + excluded.gpu_ms,
			failed_ms = day.failed_ms + excluded.failed_ms, vain_ms = day.vain_ms + excluded.vain_ms, saved_ms = day.saved_ms + excluded.saved_ms,
			runs = day.runs + excluded.runs, complete = day.complete + excluded.complete, failed = day.failed + excluded.failed,
			stopped = day.stopped + excluded.stopped, waited_ms = day.waited_ms + excluded.waited_ms`,
			k.day, k.namespace, k.user, k.class, k.model, s.gpu.Milliseconds(), s.failedGPU.Milliseconds(), s.vain.Milliseconds(), s.saved.Milliseconds(),
			s.runs, s.complete, s.failed, s.stopped, s.waited.Milliseconds())
		if err != nil {
			return fmt.Errorf("day %d: %w", k.day, err)
		}
	}
	return nil
}

// Prune forgets runs and allocations that ended before a time. The sums of days stay.
func (db *DB) Prune(ctx context.Context, before time.Time) error {
	err := db.transact(ctx, func(tx tx) error {
		for _, table := range []string{"run", "alloc"} {
			if err := tx.exec("DELETE FROM "+table+" WHERE ended > 0 AND ended < ?", stored(before)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forgetting old accounts: %w", err)
	}
	return nil
}

func stored(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func loaded(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
