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

// Hints are the settings in a job's meta whose keys are `pal_*`. If the job does not have a key,
// the field for this key is zero, except Neighbours.
type Hints struct {
	Class    pal.AppClass  // pal_class: A, B, C or D
	App      string        // pal_class: the name of an application, from which the placer gets the class
	Pin      Mode          // pal_pin: gpu, class or prefer
	Locality pal.Tier      // pal_locality: hard limit on the distance between the GPUs
	Duration time.Duration // pal_duration: expected run time
	Preempt  bool          // pal_preempt: the placer may stop the job and start it again
	// PreemptSaid reports whether the author has set pal_preempt.
	PreemptSaid bool
	Migrate     bool          // pal_migrate: the placer may move the job
	OnFailure   FailureAction // pal_on_failure
	// After is the value of pal_after: a list of jobs of the same namespace, separated by commas,
	// that must succeed before this job can start. See [Predecessors].
	After string
	// Begin is the value of pal_begin: the time before which the job does not start.
	Begin Moment
	// Parallel is the value of pal_array_parallel: the maximum number of runs of a parameterized or
	// periodic job that run at the same time.
	Parallel int
	// Elastic is the value of pal_elastic: whether the placer may change the number of members.
	Elastic bool
	// Checkpoint is the value of pal_checkpoint: the time between two checkpoints.
	Checkpoint time.Duration
	// Speed is the value of pal_speed: the job's speed on each GPU model. See [Speeds].
	Speed string
	// User is the value of pal_user: the name of the job's owner.
	User string
	// Neighbours is the value of pal_neighbours: the application classes of jobs with which the job
	// shares GPUs. Without the key pal_neighbours, the job shares GPUs with jobs of all classes.
	Neighbours pal.Sharing
}

// FailureAction says what the placer replaces after the loss of a member.
type FailureAction string

// The failure actions.
const (
	ReplaceGang   FailureAction = "gang"
	ReplaceMember FailureAction = "member"
	// ReplaceNothing means that the placer does not retry a gang that caused its own failure.
	ReplaceNothing FailureAction = "none"
)

const (
	hintPrefix = "pal_"
	// UserHint is the key of the hint that names the job's owner.
	UserHint = "pal_user"
)

// ParseHints parses the hints in the meta of the job and in the meta of its groups. If several
// groups set the same hint, they must set it to the same value. An error names the key, the value,
// and the job or group that sets the value.
func ParseHints(job *api.Job) (Hints, error) {
	h := Hints{Neighbours: pal.Sharing{Beside: pal.AnyClass}}
	seen := map[string]string{} // values by key
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
	if h.Independent(job) && h.Pin != "" && h.Pin != ModePrefer {
		return Hints{}, fmt.Errorf(`meta pal_pin = %q is for gangs, but the members of this job work independently, so Nomad alone replaces them, on any node: remove pal_pin, or set pal_on_failure to "gang"`, h.Pin)
	}
	if err := h.check(job); err != nil {
		return Hints{}, err
	}
	return h, nil
}

// Independent reports whether the members of the job work independently of each other: the members
// of a batch job with [ReplaceMember], and the replicas of a service. If its author sets
// pal_on_failure = "gang" or pal_locality, a service is a gang.
//
// Once such a job has started, Nomad owns it. The job has [ModePrefer], so its pins never keep Nomad
// from replacing, moving, updating or scaling members as it would without the placer.
func (h Hints) Independent(job *api.Job) bool {
	if job.Type == nil || *job.Type != api.JobTypeService {
		return h.OnFailure == ReplaceMember
	}
	return h.OnFailure != ReplaceGang && h.Locality == 0
}

// read reads the hints of the job or of one group. seen contains the hints that were read before,
// so that an error can name both values. read reads the keys in alphabetical order, so that a job
// always gets the same error.
func (h *Hints) read(meta map[string]string, where string, seen map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		v := meta[k]
		hint := meant(k)
		if hint != k {
			return fmt.Errorf("meta %s = %q of %s: no such hint; the correct spelling is %s", k, v, where, hint)
		}
		if !strings.HasPrefix(k, hintPrefix) {
			continue
		}
		if other, ok := seen[k]; ok && other != v {
			return fmt.Errorf("meta %s = %q of %s contradicts the value %q elsewhere in the job", k, v, where, other)
		}
		seen[k] = v
		if err := h.set(k, v); err != nil {
			return fmt.Errorf("meta %s = %q of %s: %w", k, v, where, err)
		}
	}
	return nil
}

// meant returns the hint that the author probably meant by key. If key is a hint with upper case or
// hyphens, meant returns the correct spelling; otherwise meant returns key.
func meant(key string) string {
	hint := strings.ReplaceAll(strings.ToLower(key), "-", "_")
	if hints[hint] == nil {
		return key
	}
	return hint
}

// noHints returns an error if a task of the group has hints, because hints in a task have no
// effect.
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

// hints maps each hint's key to the function that reads its value.
var hints = map[string]func(h *Hints, value string) error{
	"pal_class":      (*Hints).setClass,
	"pal_pin":        func(h *Hints, v string) (err error) { h.Pin, err = ParseMode(v); return },
	"pal_locality":   func(h *Hints, v string) (err error) { h.Locality, err = pal.ParseTier(v); return },
	"pal_duration":   func(h *Hints, v string) (err error) { h.Duration, err = parseSpan(v); return },
	"pal_preempt":    func(h *Hints, v string) (err error) { h.Preempt, err = parseBool(v); h.PreemptSaid = true; return },
	"pal_migrate":    func(h *Hints, v string) (err error) { h.Migrate, err = parseBool(v); return },
	"pal_checkpoint": func(h *Hints, v string) (err error) { h.Checkpoint, err = parseSpan(v); return },
	"pal_on_failure": func(h *Hints, v string) (err error) {
		h.OnFailure, err = pal.ParseName("action", v, ReplaceGang, ReplaceMember, ReplaceNothing)
		return
	},
	"pal_after":          func(h *Hints, v string) (err error) { h.After, err = parsePredecessors(v); return },
	"pal_begin":          func(h *Hints, v string) (err error) { h.Begin, err = parseMoment(v); return },
	"pal_array_parallel": func(h *Hints, v string) (err error) { h.Parallel, err = parseCount(v); return },
	elasticHint:          func(h *Hints, v string) (err error) { h.Elastic, err = parseBool(v); return },
	"pal_neighbours":     func(h *Hints, v string) (err error) { h.Neighbours, err = parseNeighbours(v); return },
	"pal_speed":          func(h *Hints, v string) (err error) { h.Speed, err = parseSpeeds(v); return },
	UserHint:             func(h *Hints, v string) error { h.User = v; return CheckUser(v) },
}

// set reads one hint. set returns an error for an unknown key, because otherwise nobody
// would notice that a misspelled hint has no effect.
func (h *Hints) set(key, value string) error {
	if hints[key] == nil {
		names := slices.Sorted(maps.Keys(hints))
		asked := nearest.Question(key, names)
		if asked != "" {
			return errors.New("no such hint" + asked)
		}
		return fmt.Errorf("no such hint; the hints are %s", strings.Join(names, ", "))
	}
	return hints[key](h, value)
}

// setClass reads pal_class: one letter is a class, a longer text is the name of an application.
func (h *Hints) setClass(v string) (err error) {
	if len(v) > 1 {
		h.App = v
		return nil
	}
	h.Class, err = pal.ParseAppClass(v)
	return err
}

// longest is the longest duration that an author can set: 100 years, which means forever. Twice
// this duration can be added to any time before 2062 without an overflow of the int64 that holds
// nanoseconds since 1970.
const longest = 100 * 365 * 24 * time.Hour

// Limit returns the time after which Nomad stops all allocations of the job, at most [longest]: the
// longest max_run_duration of the groups (Nomad 2.0.3 and later). If an allocation can run forever,
// Limit returns 0. Limit ignores groups whose count is 0.
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
	// errTooLong is what [ParseSpan] returns for a duration above [longest], together with the
	// value longest.
	errTooLong = fmt.Errorf("longer than the maximum duration, %.0fh (100 years)", longest.Hours())
)

// parseSpan parses the duration in a hint. A duration above [longest] counts as longest.
func parseSpan(s string) (time.Duration, error) {
	d, err := ParseSpan(s)
	if errors.Is(err, errTooLong) {
		err = nil
	}
	return d, err
}

// tooLong matches durations of any length in Go's notation. parseSpan needs tooLong because Go
// returns the same error for a duration that is too long and for text that is not a duration.
var tooLong = regexp.MustCompile(`^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`)

// inDays matches a duration that begins with days, such as "2d" or "1d12h". onClock matches Slurm's
// notation: "HH:MM:SS", "D-HH:MM:SS", "D-HH:MM" or "D-HH".
var (
	inDays  = regexp.MustCompile(`^\+?([0-9]+)d(.*)$`)
	onClock = regexp.MustCompile(`^(?:([0-9]+)-([0-9]{1,2})(?::([0-9]{2}))?(?::([0-9]{2}))?|([0-9]+):([0-9]{2}):([0-9]{2}))$`)
)

// asGo converts a duration to Go's notation. Go's notation has no days, and no colons as in
// Slurm's.
func asGo(s string) string {
	m := onClock.FindStringSubmatch(s)
	if m != nil {
		return inHours(m[1], m[2]+m[5]) + orZero(m[3]+m[6]) + "m" + orZero(m[4]+m[7]) + "s"
	}
	m = inDays.FindStringSubmatch(s)
	if m != nil {
		return inHours(m[1], "0") + m[2]
	}
	return s
}

// inHours converts a number of days and hours to a number of hours in Go's notation.
func inHours(days, hours string) string {
	d, errDays := strconv.ParseInt(orZero(days), 10, 32)
	h, errHours := strconv.ParseInt(orZero(hours), 10, 32)
	if errDays != nil || errHours != nil {
		return "999999999h" // too long for a time.Duration
	}
	return strconv.FormatInt(d*24+h, 10) + "h"
}

func orZero(number string) string { return cmp.Or(number, "0") }

// ParseSpan parses a duration. The duration must be above 0 and at most [longest].
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
		return false, fmt.Errorf("not true or false")
	}
	return b, nil
}

// parseNeighbours parses the kinds of jobs with which a job shares GPUs. The value is a list of
// application classes, or "any" or "none". In the list, "self" stands for the job's own members.
func parseNeighbours(s string) (with pal.Sharing, err error) {
	none := false
	for word := range strings.SplitSeq(s, ",") {
		word = strings.TrimSpace(word)
		switch word {
		case "any":
			with.Beside = pal.AnyClass
		case "none":
			none = true
		case "self":
			with.Self = true
		default:
			class, err := pal.ParseAppClass(word)
			if err != nil {
				return pal.Sharing{}, fmt.Errorf("%q must be an application class (A to D), any, none or self", word)
			}
			with.Beside[class.Index()] = true
		}
	}
	if none && with.Beside != [pal.NumClasses]bool{} {
		return pal.Sharing{}, errors.New("none can be combined only with self")
	}
	return with, nil
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("not a positive integer")
	}
	return n, nil
}

// longestUser is the maximum length of a user's name, in bytes.
const longestUser = 128

// UserOf returns the user that the job names for accounting, or "" if the job names no user, or if
// the name is not valid.
func UserOf(job *api.Job) string {
	name := strings.TrimSpace(job.Meta[UserHint])
	if CheckUser(name) != nil {
		return ""
	}
	return name
}

// CheckUser returns an error if the name of a user is not valid.
func CheckUser(name string) error {
	if name == "" || len(name) > longestUser || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("not a name of 1 to %d bytes", longestUser)
	}
	return nil
}

// maxAfter is the maximum number of jobs in pal_after. The number is limited because the placer
// checks each of these jobs in every cycle.
const maxAfter = 32

// parsePredecessors normalizes the value of pal_after: it removes spaces and duplicates.
func parsePredecessors(s string) (string, error) {
	var all []string
	for one := range strings.SplitSeq(s, ",") {
		id := strings.TrimSpace(one)
		if id == "" {
			return "", fmt.Errorf("not a list of jobs such as prepare,train")
		}
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	if len(all) > maxAfter {
		return "", fmt.Errorf("more than %d jobs", maxAfter)
	}
	return strings.Join(all, ","), nil
}

// Predecessors returns the jobs in [Hints.After].
func Predecessors(after string) []string {
	if after == "" {
		return nil
	}
	return strings.Split(after, ",")
}

// Moment is a time in a hint. If the author gave a duration, Within is this duration, counted from
// the registration, and At is zero.
type Moment struct {
	At     time.Time
	Within time.Duration
}

// IsZero reports whether the job does not have the hint.
func (m Moment) IsZero() bool { return m == Moment{} }

// parseMoment parses a time, or a duration that counts from the registration.
func parseMoment(s string) (m Moment, err error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return Moment{At: at.UTC()}, nil
	}
	if m.Within, err = parseSpan(s); err != nil {
		return Moment{}, fmt.Errorf("neither a time such as 2026-11-25T18:00:00Z nor a positive duration such as 12h")
	}
	return m, nil
}

// For returns the moment as a time, for a job that was registered at the time `submitted`. ok is
// false if the job does not have the hint.
func (m Moment) For(submitted time.Time) (at time.Time, ok bool) {
	if m.Within > 0 {
		return submitted.Add(m.Within), true
	}
	return m.At, !m.IsZero()
}

// check returns an error if some hints contradict each other or the jobspec. Runs of a
// parameterized or periodic job inherit the job's hints, so pal_array_parallel is also valid in a
// run.
func (h Hints) check(job *api.Job) error {
	child := job.ParentID != nil && *job.ParentID != ""
	template := job.ParameterizedJob != nil || job.Periodic != nil
	switch {
	case job.ID != nil && slices.Contains(Predecessors(h.After), *job.ID):
		return fmt.Errorf("meta pal_after contains the job itself")
	case h.Parallel > 0 && !child && !template:
		return fmt.Errorf("meta pal_array_parallel requires a parameterized or periodic job")
	case h.Checkpoint > 0 && !h.Preempt && !h.Migrate:
		return fmt.Errorf(`meta pal_checkpoint is for jobs that may be stopped: add pal_preempt = "true", or remove pal_checkpoint`)
	}
	return h.checkElastic(job)
}
