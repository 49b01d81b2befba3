// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// DB is a database of runs, allocations, and sums by day and month. A DB is safe for concurrent
// use. Several agents can share a PostgreSQL database, but not an SQLite file.
type DB struct {
	sql      *sql.DB
	name     string // for messages: the file or "PostgreSQL"; addresses can contain passwords
	postgres bool
}

// IsPostgres reports whether database is the address of a PostgreSQL server and not the path of a
// file.
func IsPostgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// Open opens a database and migrates it to the current schema. If the database is missing, Open
// creates it. The argument is the path of an SQLite file, or an address postgres://… If an SQLite
// file is corrupt, Open renames the file, returns its new path as aside, and starts with an empty
// database.
func Open(ctx context.Context, database string) (db *DB, aside string, err error) {
	if IsPostgres(database) {
		db, err = open(ctx, "pgx", "PostgreSQL", database)
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
	for _, beside := range []string{"-wal", "-shm"} { // files of the corrupt database
		if err := os.Rename(database+beside, aside+beside); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, aside, fmt.Errorf("setting a corrupt database aside: %w", err)
		}
	}
	db, err = openFile(ctx, database)
	return db, aside, err
}

// openFile opens an SQLite file and checks it.
func openFile(ctx context.Context, file string) (*DB, error) {
	db, err := open(ctx, "sqlite", file, "file:"+file+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(5000)&_pragma=cache_size(-65536)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	var found string
	if err := db.sql.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil || found != "ok" {
		return nil, errors.Join(fmt.Errorf("checking %s: %w", file, cmp.Or(err, error(errCorrupt{found}))), db.Close())
	}
	return db, nil
}

// errCorrupt means that SQLite found a fault when it checked the file.
type errCorrupt struct{ found string }

func (e errCorrupt) Error() string { return "the file is corrupt: " + e.found }

func corrupt(err error) bool {
	if _, ok := errors.AsType[errCorrupt](err); ok {
		return true
	}
	of, ok := errors.AsType[*sqlite.Error](err)
	return ok && (of.Code()&0xff == sqlite3.SQLITE_CORRUPT || of.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

func open(ctx context.Context, driver, name, source string) (*DB, error) {
	pool, err := sql.Open(driver, source)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	pool.SetMaxOpenConns(4)
	db := &DB{sql: pool, name: name, postgres: driver == "pgx"}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", name, err), pool.Close())
	}
	return db, nil
}

// Close closes the database.
func (db *DB) Close() error { return db.sql.Close() }

// migrate applies the missing migrations to the schema in one transaction.
func (db *DB) migrate(ctx context.Context) error {
	return db.transact(ctx, func(tx tx) error {
		if err := tx.exec("CREATE TABLE IF NOT EXISTS version (applied BIGINT NOT NULL)"); err != nil {
			return err
		}
		if db.postgres { // several agents can start at the same time
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
			return fmt.Errorf("a later version of nomad-pal wrote the database (schema %d; this version knows %d)", applied, len(migrations))
		}
		for ; applied < len(migrations); applied++ {
			for statement := range strings.SplitSeq(migrations[applied], ";\n") {
				if strings.TrimSpace(statement) == "" {
					continue
				}
				if err := tx.exec(statement); err != nil {
					return fmt.Errorf("schema %d: %w", applied+1, err)
				}
			}
		}
		return tx.exec("UPDATE version SET applied = ?", applied)
	})
}

// tx is a transaction. Statements use ? for arguments, even if the database is PostgreSQL.
type tx struct {
	*sql.Tx
	ctx context.Context
}

func (t tx) exec(statement string, args ...any) error {
	_, err := t.ExecContext(t.ctx, numbered(statement), args...)
	return err
}

// change executes a statement, and reports whether it changed a row.
func (t tx) change(statement string, args ...any) (bool, error) {
	done, err := t.ExecContext(t.ctx, numbered(statement), storable(args)...)
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// numbered replaces the question marks in a statement with $1, $2, …, which PostgreSQL needs and
// SQLite accepts.
func numbered(statement string) string {
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
	defer func() { _ = t.Rollback() }() // does nothing after a commit
	if err := do(tx{t, ctx}); err != nil {
		return err
	}
	return t.Commit()
}

// Write stores either the whole batch or nothing.
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
		for _, i := range b.Idle {
			if err := tx.idle(i, days); err != nil {
				return fmt.Errorf("idle GPUs of allocation %s: %w", i.Alloc, err)
			}
		}
		return tx.days(days)
	})
	if err != nil {
		return fmt.Errorf("writing to %s: %w", db.name, err)
	}
	return nil
}

// table describes a database table. A table has a name, the columns of its key, all columns to
// write, and the columns whose first value is never overwritten. Column names are separated by ",
// ".
type table struct{ name, key, columns, kept string }

// upsert returns a statement that stores a row. If a row with the same key is stored and has ended,
// the statement changes nothing.
func (t table) upsert() string {
	names, keep := strings.Split(t.columns, ", "), strings.Split(t.key+", "+t.kept, ", ")
	var sets []string
	for _, c := range names {
		if !slices.Contains(keep, c) {
			sets = append(sets, c+" = excluded."+c)
		}
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT (%s) DO UPDATE SET %s WHERE %s.ended = 0",
		t.name, t.columns, marks(len(names)), t.key, strings.Join(sets, ", "), t.name)
}

// marks returns n question marks, separated by commas.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

var (
	upsertRun   = table{name: "run", key: "namespace, job, submitted", columns: runColumns, kept: "idle"}.upsert()
	upsertAlloc = table{name: "alloc", key: "id", columns: allocColumns + ", ended", kept: "namespace, job, node, gpus, held, began"}.upsert()
	upsertSums  = map[string]string{"day": upsertSumsOf("day"), "month": upsertSumsOf("month")}
)

// run stores a run and, if the run has ended, adds it to the sums of its day.
func (t tx) run(r palapi.Run, days map[dayKey]sums) (err error) {
	r.Job, r.User, r.Model, r.Family = short(r.Job), short(r.User), short(r.Model), short(r.Family)
	if r.Took > 0 {
		if r.Seen, err = t.seen(r); err != nil {
			return err
		}
	}
	changed, err := t.change(upsertRun,
		r.Namespace, r.Job, stored(r.Submitted), r.User, r.Class, r.Model, r.GPUs, r.MemberGPUs, r.Preemptible, string(r.State), r.Reason,
		stored(r.Started), stored(r.Whole), stored(r.Ended), millis(r.Waited), r.Predicted, r.Packed, r.Any,
		r.Slowest, r.Family, millis(r.Took), r.Seen, millis(r.Idle), r.Stops.Stops, r.LostGPUSeconds, r.SavedSeconds)
	if changed && !r.Ended.IsZero() {
		k := dayKey{dayOf(r.Ended), r.Namespace, r.User, r.Class, r.Model}
		days[k] = days[k].plus(sumsOf(r))
	}
	return err
}

// seen returns the measured slowdown of a run (see [palapi.Run.Seen]).
func (t tx) seen(r palapi.Run) (float64, error) {
	rows, err := t.QueryContext(t.ctx, numbered(`SELECT took / predicted FROM run WHERE namespace = ? AND family = ? AND submitted < ? AND took > 0
		AND predicted > 0 AND gpus = ? AND model = ? ORDER BY submitted DESC LIMIT `+strconv.Itoa(kin)),
		storable([]any{r.Namespace, r.Family, stored(r.Submitted), r.GPUs, r.Model})...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var times []float64
	for rows.Next() {
		var ms float64
		if err := rows.Scan(&ms); err != nil {
			return 0, err
		}
		times = append(times, ms)
	}
	if len(times) < fewestKin || rows.Err() != nil {
		return 0, rows.Err()
	}
	slices.Sort(times)
	middle := (times[(len(times)-1)/2] + times[len(times)/2]) / 2
	return float64(millis(r.Took)) / middle, nil
}

// alloc stores an allocation. If the allocation has ended, alloc adds its GPU time to the sums of
// its days.
func (t tx) alloc(a Alloc, days map[dayKey]sums) error {
	a.Job, a.User, a.Model = short(a.Job), short(a.User), short(a.Model)
	changed, err := t.change(upsertAlloc,
		a.ID, a.Namespace, a.Job, stored(a.Submitted), a.User, a.Class, a.Node, a.Model, strings.Join(a.GPUs, ","), a.Held,
		stored(a.From), a.Status, stored(a.Vain), a.Predicted, a.Packed, stored(a.To))
	if changed && !a.To.IsZero() {
		a.addTo(days, time.Time{}, a.To)
	}
	return err
}

// idle adds the idle time of an allocation's GPUs to the allocation's run, and to the sums of the
// days. If the allocation is not stored, idle drops the time.
func (t tx) idle(i Idle, days map[dayKey]sums) error {
	a, submitted := Alloc{Held: i.GPUs}, int64(0)
	of := t.QueryRowContext(t.ctx, numbered("SELECT namespace, job, submitted, username, class, model FROM alloc WHERE id = ?"), i.Alloc)
	err := of.Scan(&a.Namespace, &a.Job, &submitted, &a.User, &a.Class, &a.Model)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	byDay(i.From, i.To, func(day int64, from, to time.Time) {
		var s sums
		s[idleTime] = a.gpuTime(from, to)
		k := a.dayKey(day)
		days[k] = days[k].plus(s)
	})
	_, err = t.change("UPDATE run SET idle = idle + ? WHERE namespace = ? AND job = ? AND submitted = ?",
		a.gpuTime(i.From, i.To), a.Namespace, a.Job, submitted)
	return err
}

const dayColumns = "day, namespace, username, class, model"

func upsertSumsOf(table string) string {
	var sets []string
	for _, c := range sumColumns {
		sets = append(sets, fmt.Sprintf("%s = %s.%s + excluded.%s", c, table, c, c))
	}
	return fmt.Sprintf("INSERT INTO %s (%s, %s) VALUES (%s) ON CONFLICT (%s) DO UPDATE SET %s", table, dayColumns,
		strings.Join(sumColumns[:], ", "), marks(5+len(sumColumns)), dayColumns, strings.Join(sets, ", "))
}

// days adds sums to the stored sums of each day and of each day's month. All agents write rows in
// the same order, so that they cannot deadlock.
func (t tx) days(days map[dayKey]sums) error {
	months := map[dayKey]sums{}
	for k, s := range days {
		k.day = monthOf(k.day)
		months[k] = months[k].plus(s)
	}
	for _, of := range []struct {
		table string
		sums  map[dayKey]sums
	}{{"day", days}, {"month", months}} {
		for _, k := range slices.SortedFunc(maps.Keys(of.sums), dayKey.compare) {
			args := []any{k.day, k.namespace, k.user, k.class, k.model}
			for _, n := range of.sums[k] {
				args = append(args, n)
			}
			if _, err := t.change(upsertSums[of.table], args...); err != nil {
				return fmt.Errorf("%s of %s: %w", of.table, startOf(k.day).Format(time.DateOnly), err)
			}
		}
	}
	return nil
}

func (k dayKey) compare(o dayKey) int {
	return cmp.Or(cmp.Compare(k.day, o.day), strings.Compare(k.namespace, o.namespace), strings.Compare(k.user, o.user),
		strings.Compare(k.class, o.class), strings.Compare(k.model, o.model))
}

// Prune deletes the runs and allocations that ended before a given time. Prune does not delete the
// sumsOf of days and months.
func (db *DB) Prune(ctx context.Context, before time.Time) error {
	at := stored(before)
	err := db.transact(ctx, func(tx tx) error {
		if err := tx.exec("DELETE FROM run WHERE submitted < ? AND ended > 0 AND ended < ?", at, at); err != nil {
			return err
		}
		return tx.exec("DELETE FROM alloc WHERE ended > 0 AND ended < ?", at)
	})
	if err == nil && !db.postgres { // updates SQLite's statistics; PostgreSQL updates its own
		_, err = db.sql.ExecContext(ctx, "PRAGMA optimize(0x10002)")
	}
	if err != nil {
		return fmt.Errorf("deleting old history: %w", err)
	}
	return nil
}

// storable returns arguments whose texts every database can store. PostgreSQL stores no NUL and no
// invalid UTF-8, but authors can write a NUL into a job's meta, and nodes into the name of a GPU
// model. Without storable, one such job would keep the runs of all others out of the history.
func storable(args []any) []any {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
		}
	}
	return args
}

// longestText is the maximum length of a text in an index, in bytes. PostgreSQL refuses texts above
// about 2,700 bytes.
const longestText = 1000

// short returns a text that can be in an index. The end of a text that is too long becomes a hash,
// so that different texts stay different.
func short(text string) string {
	if len(text) <= longestText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return strings.ToValidUTF8(text[:longestText/2], "") + "…" + hex.EncodeToString(sum[:])
}

func millis(s palapi.Seconds) int64 { return time.Duration(s).Milliseconds() }

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
