// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// table reads rows according to a format.
type table struct {
	*rows
	format format
	at     map[string]int // positions of columns by name in lower case
	clock  clock
	twice  []string // columns that appear twice
	// starts and ends report whether the table has columns of start times and of end times.
	starts, ends bool
}

// newTable finds the format of the rows.
func newTable(rs *rows) (*table, error) {
	t := &table{rows: rs, at: map[string]int{}}
	for i, name := range rs.header {
		name = strings.ToLower(name)
		if t.has(name) {
			t.twice = append(t.twice, name)
		}
		t.at[name] = i
	}
	all := formats()
	i := slices.IndexFunc(all, func(f format) bool { return len(t.lacks(f.known)) == 0 })
	if i < 0 {
		return nil, fmt.Errorf("%s:%d: %w", rs.name, max(1, rs.line), t.unknown(all))
	}
	t.format = all[i]
	t.starts, t.ends = t.has("start|start_time"), t.has("end|end_time")
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", rs.name, max(1, rs.line), err)
	}
	return t, nil
}

// has reports whether the table has all columns of "a+b", or one alternative of "a|b".
func (t *table) has(columns string) bool {
	return slices.ContainsFunc(strings.Split(columns, "|"), func(all string) bool {
		return !slices.ContainsFunc(strings.Split(all, "+"), func(c string) bool { _, ok := t.at[c]; return !ok })
	})
}

// lacks returns the columns that the table does not have.
func (t *table) lacks(columns []string) []string {
	return slices.DeleteFunc(slices.Clone(columns), t.has)
}

// check refuses a table that lacks columns, or has columns that its format does not know.
func (t *table) check() error {
	var known []string
	for _, c := range t.format.columns {
		if slices.Contains(t.twice, c.name) {
			return fmt.Errorf("column %q appears twice", c.name)
		}
		known = append(known, c.name)
	}
	slices.Sort(known)
	other := slices.DeleteFunc(slices.Sorted(maps.Keys(t.at)), func(name string) bool {
		return name == "" || slices.Contains(known, name) || t.format.slurm
	})
	missing := t.lacks(t.format.needs)
	if len(missing) > 0 {
		names := strings.NewReplacer("|", " or ", "+", " and ").Replace(strings.Join(missing, "; "))
		return fmt.Errorf("these columns are missing: %s (the table is read as %s%s)", names, t.format.title, t.format.hint)
	}
	if len(other) > 0 {
		return fmt.Errorf("column %q is unknown; the table is read as %s, which has %s", other[0], t.format.title, strings.Join(known, ", "))
	}
	return nil
}

// unknown returns the error for a table of no known format.
func (t *table) unknown(all []format) error {
	titles := make([]string, len(all))
	for i, f := range all {
		titles[i] = f.title
	}
	hint := ""
	if len(t.header) == 1 || slurmID.MatchString(t.header[0]) {
		hint = "; separate the columns with commas, semicolons, tabs or |, below a header" + all[0].hint
	}
	return fmt.Errorf("unknown trace format: its columns are %.500q%s. Known formats: %s (with columns job_id, gpus, submit_time, duration and more)",
		strings.Join(t.header, ", "), hint, strings.Join(titles, ", "))
}

// read reads all rows into the book.
func (t *table) read(b *book) error {
	type bound struct {
		column
		at int
	}
	var columns []bound
	for _, c := range t.format.columns {
		if i, ok := t.at[c.name]; ok {
			columns = append(columns, bound{c, i})
		}
	}
	return t.each(func(cells []string) error {
		r := row{line: t.line, clock: &t.clock}
		r.Priority = defaultPriority
		for _, c := range columns {
			r.column = t.header[c.at]
			if err := c.read(&r, cells[c.at]); err != nil {
				return fmt.Errorf("column %q: %w", r.column, err)
			}
			if r.step {
				return nil
			}
		}
		if r.ID == "" {
			return errors.New("the row has no job")
		}
		return b.add(&r, t)
	})
}
