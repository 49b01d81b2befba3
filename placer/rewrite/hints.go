// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/pal"
)

// Hints are what an author says about a job in its meta, keys `pal_*`. Zero
// values mean that nothing was said.
type Hints struct {
	Class    pal.AppClass  // pal_class: A…D
	App      string        // pal_app: the application's name, mapped to a class by the placer
	Pin      Mode          // pal_pin: gpu, class, prefer
	Locality pal.Tier      // pal_locality: hard limit on how far apart the GPUs may be
	Wait     time.Duration // pal_locality_wait: how long to wait for locality before relaxing
	Duration time.Duration // pal_duration: expected run time
	Preempt  bool          // pal_preempt: may be stopped and started again
	// PreemptSaid: set if its author decided it.
	PreemptSaid bool
	Migrate     bool          // pal_migrate: may be moved
	OnFailure   FailureAction // pal_on_failure
	// After are the jobs, of its namespace, that must have finished well first, with
	// commas between: pal_after. See [Hints.Jobs].
	After string
	// Deadline is the time when the job has to be done, pal_deadline: a time, or (Within) a time since its
	// author registered it.
	Deadline time.Time
	Within   time.Duration
	// Parallel is how many children of a parameterized or periodic job run at a time at
	// most: pal_array_parallel.
	Parallel int
	// Elastic: the placer may change the number of members, pal_elastic; Efficiency is what
	// each doubling of them keeps of a linear speed-up, pal_elastic_efficiency.
	Elastic    bool
	Efficiency float64
	// Checkpoint is for how long it runs from one checkpoint to the next: pal_checkpoint.
	Checkpoint time.Duration
	// Progress: it reports how much of its work it has done: pal_progress.
	Progress bool
	// Speed is how fast it runs on each GPU model: pal_speed. See [Speeds].
	Speed string
	// User is whose job it is, by its author's word: pal_user.
	User string
	// Neighbours are with whom it shares GPUs that are shared: pal_neighbours.
	Neighbours pal.Sharing
}

// FailureAction is what is placed again after a member was lost. Pins to single
// GPUs cannot change under running members: Nomad replaces every member whose
// device block differs from the job's. A changed node constraint replaces nobody. So
// "member" goes with [ModeClass], whose pins widen by the node constraint alone; jobs
// that ask for "member" get that mode.
type FailureAction string

// The failure actions.
const (
	ReplaceGang   FailureAction = "gang"
	ReplaceMember FailureAction = "member"
	// ReplaceNothing: a gang that fails by its own fault is not tried again.
	ReplaceNothing FailureAction = "none"
)

const (
	hintPrefix = "pal_"
	// UserHint is whose job it is.
	UserHint = "pal_user"
)

// ParseHints reads the hints of the job's meta and of its groups' meta. Groups
// may repeat hints; where two places disagree, that is an error. Errors name
// the key, the value and where it stands.
func ParseHints(job *api.Job) (Hints, error) {
	h := Hints{Neighbours: pal.Sharing{Beside: pal.AnyClass}}
	seen := map[string]string{} // key → value
	if err := h.read(job.Meta, "the job", seen); err != nil {
		return Hints{}, err
	}
	for _, g := range job.TaskGroups {
		if err := h.read(g.Meta, fmt.Sprintf("group %q", *g.Name), seen); err != nil {
			return Hints{}, err
		}
		if err := noHints(g); err != nil {
			return Hints{}, err
		}
	}
	if h.OnFailure == ReplaceMember && h.Pin != "" && h.Pin != ModeClass {
		return Hints{}, fmt.Errorf(`meta pal_on_failure = "member" contradicts pal_pin = %q: only pins to nodes and a class can change while other members run; leave pal_pin out, or say "class"`, h.Pin)
	}
	if err := h.check(job); err != nil {
		return Hints{}, err
	}
	return h, nil
}

// read takes the hints of one place. seen has those of the places before, so that a
// contradiction names both values. Keys go in order: the same job, the same error.
func (h *Hints) read(meta map[string]string, where string, seen map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		v := meta[k]
		if hint := meant(k); hint != k {
			return fmt.Errorf("meta %s = %q of %s: no such hint: write it %s", k, v, where, hint)
		}
		if !strings.HasPrefix(k, hintPrefix) {
			continue
		}
		if other, ok := seen[k]; ok && other != v {
			return fmt.Errorf("meta %s = %q of %s contradicts %q elsewhere in the job", k, v, where, other)
		}
		seen[k] = v
		if err := h.set(k, v); err != nil {
			return fmt.Errorf("meta %s = %q of %s: %w", k, v, where, err)
		}
	}
	return nil
}

// meant is the hint that a key is but for upper case and hyphens, else the key itself.
func meant(key string) string {
	hint := strings.ReplaceAll(strings.ToLower(key), "-", "_")
	if hints[hint] == nil {
		return key
	}
	return hint
}

// noHints checks that no task of the group has hints: they would do nothing there.
func noHints(g *api.TaskGroup) error {
	for _, t := range g.Tasks {
		for _, k := range slices.Sorted(maps.Keys(t.Meta)) {
			if strings.HasPrefix(meant(k), hintPrefix) {
				return fmt.Errorf("meta %s = %q of task %q: hints belong in the meta of the job or of a group", k, t.Meta[k], t.Name)
			}
		}
	}
	return nil
}

// hints are all hints, each with how its value is read.
var hints = map[string]func(h *Hints, value string) error{
	"pal_class":              func(h *Hints, v string) (err error) { h.Class, err = pal.ParseAppClass(v); return },
	"pal_app":                func(h *Hints, v string) (err error) { h.App = v; return },
	"pal_pin":                func(h *Hints, v string) (err error) { h.Pin, err = ParseMode(v); return },
	"pal_locality":           func(h *Hints, v string) (err error) { h.Locality, err = pal.ParseTier(v); return },
	"pal_locality_wait":      func(h *Hints, v string) (err error) { h.Wait, err = parseSpan(v); return },
	"pal_duration":           func(h *Hints, v string) (err error) { h.Duration, err = parseSpan(v); return },
	"pal_preempt":            func(h *Hints, v string) (err error) { h.Preempt, err = parseBool(v); h.PreemptSaid = true; return },
	"pal_migrate":            func(h *Hints, v string) (err error) { h.Migrate, err = parseBool(v); return },
	"pal_checkpoint":         func(h *Hints, v string) (err error) { h.Checkpoint, err = parseSpan(v); return },
	"pal_progress":           func(h *Hints, v string) (err error) { h.Progress, err = parseBool(v); return },
	"pal_on_failure":         func(h *Hints, v string) (err error) { h.OnFailure, err = parseFailureAction(v); return },
	"pal_after":              func(h *Hints, v string) (err error) { h.After, err = parseJobs(v); return },
	"pal_deadline":           func(h *Hints, v string) (err error) { h.Deadline, h.Within, err = parseDeadline(v); return },
	"pal_array_parallel":     func(h *Hints, v string) (err error) { h.Parallel, err = parseCount(v); return },
	elasticHint:              func(h *Hints, v string) (err error) { h.Elastic, err = parseBool(v); return },
	"pal_neighbours":         func(h *Hints, v string) (err error) { h.Neighbours, err = parseNeighbours(v); return },
	"pal_speed":              func(h *Hints, v string) (err error) { h.Speed, err = parseSpeeds(v); return },
	UserHint:                 func(h *Hints, v string) (err error) { h.User, err = parseUser(v); return },
	"pal_elastic_efficiency": func(h *Hints, v string) (err error) { h.Efficiency, err = parseEfficiency(v); return },
}

// set takes one hint. An unknown key is an error, not ignored: a hint that is spelt wrong
// would otherwise do nothing, and nobody would notice.
func (h *Hints) set(key, value string) error {
	if hints[key] == nil {
		names := slices.Sorted(maps.Keys(hints))
		if near := nearest.Name(key, names); near != "" {
			return fmt.Errorf("no such hint (did you mean %s?)", near)
		}
		return fmt.Errorf("no such hint (one of %s)", strings.Join(names, ", "))
	}
	return hints[key](h, value)
}

// longest is the longest span that an author can say: 100 years, as good as forever. Sums of two
// and a time of this century are less than an int64 holds of nanoseconds.
const longest = 100 * 365 * 24 * time.Hour

// Limit is after how long Nomad ends all of the job's allocations (max_run_duration
// of its groups, Nomad 2.0.3 and later), [longest] at most; 0 if it lets any run forever.
// A group of count 0 has none.
func Limit(job *api.Job) time.Duration {
	var most time.Duration
	for _, g := range job.TaskGroups {
		switch {
		case g.Count != nil && *g.Count == 0:
		case g.MaxRunDuration == nil || *g.MaxRunDuration <= 0:
			return 0
		default:
			most = max(most, min(*g.MaxRunDuration, longest))
		}
	}
	return most
}

var (
	errNoSpan = errors.New("not a positive duration such as 30s, 12h, 2d or 1-12:00:00")
	// errTooLong is what [ParseSpan] says of more than [longest], which it then returns too.
	errTooLong = fmt.Errorf("longer than the longest duration, %.0fh (100 years)", longest.Hours())
)

// parseSpan reads a hint: what is too long is as good as forever.
func parseSpan(s string) (time.Duration, error) {
	d, err := ParseSpan(s)
	if errors.Is(err, errTooLong) {
		err = nil
	}
	return d, err
}

// tooLong are spans as Go writes them. Those that are more than it can hold it calls invalid, as
// it does what is no span at all.
var tooLong = regexp.MustCompile(`^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)

// inDays is a span that begins with days, as "2d" or "1d12h"; onClock is one as Slurm takes it:
// "HH:MM:SS", "D-HH:MM:SS", "D-HH:MM" or "D-HH".
var (
	inDays  = regexp.MustCompile(`^\+?([0-9]+)d(.*)$`)
	onClock = regexp.MustCompile(`^(?:([0-9]+)-([0-9]{1,2})(?::([0-9]{2}))?(?::([0-9]{2}))?|([0-9]+):([0-9]{2}):([0-9]{2}))$`)
)

// asGo is a span as Go writes it: Go knows neither days nor Slurm's colons.
func asGo(s string) string {
	if m := onClock.FindStringSubmatch(s); m != nil {
		return inHours(m[1], m[2]+m[5]) + orZero(m[3]+m[6]) + "m" + orZero(m[4]+m[7]) + "s"
	}
	if m := inDays.FindStringSubmatch(s); m != nil {
		return inHours(m[1], "0") + m[2]
	}
	return s
}

// inHours is a number of days and of hours as Go writes it.
func inHours(days, hours string) string {
	d, errDays := strconv.ParseInt(orZero(days), 10, 32)
	h, errHours := strconv.ParseInt(orZero(hours), 10, 32)
	if errDays != nil || errHours != nil {
		return "999999999h" // more than a span can hold
	}
	return strconv.FormatInt(d*24+h, 10) + "h"
}

func orZero(number string) string { return cmp.Or(number, "0") }

// ParseSpan reads a span above 0, of [longest] at most.
func ParseSpan(s string) (time.Duration, error) {
	s = asGo(s)
	d, err := time.ParseDuration(s)
	switch {
	case err == nil && d > longest, err != nil && tooLong.MatchString(s):
		return longest, errTooLong
	case err != nil || d <= 0:
		return 0, errNoSpan
	}
	return d, nil
}

func parseBool(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("neither true nor false")
	}
	return b, nil
}

func parseFailureAction(s string) (FailureAction, error) {
	return pal.ParseName("action", s, ReplaceGang, ReplaceMember, ReplaceNothing)
}

// parseNeighbours reads with whom a job shares GPUs: classes, any or none, and self for its own members.
func parseNeighbours(s string) (with pal.Sharing, err error) {
	none := false
	for word := range strings.SplitSeq(s, ",") {
		switch word = strings.TrimSpace(word); word {
		case "any":
			with.Beside = pal.AnyClass
		case "none":
			none = true
		case "self":
			with.Self = true
		default:
			class, err := pal.ParseAppClass(word)
			if err != nil {
				return pal.Sharing{}, fmt.Errorf("%q is not an application class (A to D), any, none or self", word)
			}
			with.Beside[class.Index()] = true
		}
	}
	if none && with.Beside != [pal.NumClasses]bool{} {
		return pal.Sharing{}, errors.New("none goes with self alone")
	}
	return with, nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("not a number of at least 1")
	}
	return n, nil
}

// longestUser is how many bytes a user's name has at most.
const longestUser = 128

// parseUser reads a user's name.
func parseUser(s string) (string, error) {
	if s == "" || len(s) > longestUser || strings.ContainsFunc(s, unicode.IsControl) {
		return "", fmt.Errorf("not a name of 1 to %d bytes", longestUser)
	}
	return s, nil
}

// maxAfter bounds the jobs that one waits for: the placer looks at each in every cycle.
const maxAfter = 32

// parseJobs tidies a list of job IDs: no spaces, none twice.
func parseJobs(s string) (string, error) {
	var ids []string
	for id := range strings.SplitSeq(s, ",") {
		id = strings.TrimSpace(id)
		if id == "" {
			return "", fmt.Errorf("not a list of jobs such as prepare,train")
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxAfter {
		return "", fmt.Errorf("more than %d jobs", maxAfter)
	}
	return strings.Join(ids, ","), nil
}

// Jobs are the IDs of the jobs that the job comes after.
func (h Hints) Jobs() []string {
	if h.After == "" {
		return nil
	}
	return strings.Split(h.After, ",")
}

// parseDeadline reads a time of day, or a duration from the registration on.
func parseDeadline(s string) (at time.Time, within time.Duration, err error) {
	if at, err = time.Parse(time.RFC3339, s); err == nil {
		return at.UTC(), 0, nil
	}
	if within, err = parseSpan(s); err != nil {
		return time.Time{}, 0, fmt.Errorf("neither a time such as 2026-11-25T18:00:00Z nor a positive duration such as 12h")
	}
	return time.Time{}, within, nil
}

// check reports which hints contradict each other, or the job. Children of a template
// inherit its hints, so that pal_array_parallel is right there too.
func (h Hints) check(job *api.Job) error {
	child := job.ParentID != nil && *job.ParentID != ""
	template := job.ParameterizedJob != nil || job.Periodic != nil
	switch {
	case job.ID != nil && slices.Contains(h.Jobs(), *job.ID):
		return fmt.Errorf("meta pal_after names the job itself")
	case h.Parallel > 0 && !child && !template:
		return fmt.Errorf("meta pal_array_parallel bounds how many children of a parameterized or periodic job run at a time: this job has none")
	case h.Checkpoint > 0 && !h.Preempt && !h.Migrate:
		return fmt.Errorf(`meta pal_checkpoint says when the job is best stopped, and nothing says that it may be: add pal_preempt = "true", or leave it out`)
	case h.Within > 0 && h.Duration > h.Within:
		return fmt.Errorf("meta pal_deadline = %v after it is registered contradicts pal_duration = %v", h.Within, h.Duration)
	}
	return h.checkElastic(job)
}

// DeadlineOf is by when the job is to have ended, if its author registered it at
// submitted; ok is false if it has no deadline.
func (h Hints) DeadlineOf(submitted time.Time) (at time.Time, ok bool) {
	switch {
	case !h.Deadline.IsZero():
		return h.Deadline, true
	case h.Within > 0:
		return submitted.Add(h.Within), true
	}
	return time.Time{}, false
}
