// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

const (
	decisionsPrefix    = "nomad-pal/decisions"
	measurementsPrefix = "nomad-pal/measurements"
	controlsPrefix     = "nomad-pal/controls"
	// FailuresPath is the path of the variable with the failures. Failures name jobs of all
	// namespaces, so everybody who may read this variable counts as an operator.
	FailuresPath = "nomad-pal/failures"
)

// Decision returns the variable with the last decision on a job. If the decision is too large, some
// parts are left out, in this order: the members of the packed alternative, the predicted members,
// the last chosen members, the walk, and the ends of long texts.
func (s Store) Decision(k cluster.JobKey) Variable[gang.Record] {
	return Variable[gang.Record]{DecisionPath(k), s.nomad, asJSON("decision", shrinkRecord)}
}

// Record reads the last decision on a job. Record returns nil if there is no decision.
func (s Store) Record(ctx context.Context, k cluster.JobKey) (*gang.Record, error) {
	r, err := s.Decision(k).Read(ctx)
	if !r.There {
		return nil, err
	}
	r.Of.Index = r.Index
	return &r.Of, err
}

// DecisionPath returns the path of the variable that [Store.Decision] returns.
func DecisionPath(k cluster.JobKey) string { return Path(decisionsPrefix, k.Namespace, k.ID) }

// Decisions returns the shards with the last decisions on all jobs.
func (s Store) Decisions() Shards[gang.Record, []gang.Record] {
	return Shards[gang.Record, []gang.Record]{prefix: decisionsPrefix, nomad: s.nomad, codec: s.Decision(cluster.JobKey{}).codec, join: whole[gang.Record]}
}

// textBytes is the maximum length of each text in a record that is too large.
const textBytes = 1 << 10

func shrinkRecord(r *gang.Record) bool {
	d := &r.Decision
	switch {
	case d.Packed != nil && len(d.Packed.Members) > 0:
		packed := *d.Packed
		packed.Members = nil
		d.Packed = &packed
	case r.Predicted != nil && len(r.Predicted.Members) > 0:
		predicted := *r.Predicted
		predicted.Members = nil
		r.Predicted = &predicted
	case d.Chosen != nil && len(d.Chosen.Members) > 0:
		chosen := *d.Chosen
		keep := len(chosen.Members) / 2
		r.MembersOmitted += len(chosen.Members) - keep
		chosen.Members = chosen.Members[:keep]
		d.Chosen = &chosen
	case len(d.Walk) > 0:
		d.WalkOmitted += len(d.Walk)
		d.Walk = nil
	default:
		cut := func(text string) string { return AtMost(textBytes, text) }
		shorter := r.GivenUp.Shorten(cut)
		shorter = r.StoppedWhy.Shorten(cut) || shorter
		return d.Reason.Shorten(cut) || shorter
	}
	return true
}

// runTimesShards is the number of variables with run times. The hash of a name selects the variable.
// If this number changes, names move to other variables.
const runTimesShards = 8

// RunTimes returns the shards that contain the run times for each name. If a shard is too large,
// each of its names loses the older half of its runs. A name with a single run is dropped.
func (s Store) RunTimes() Shards[[]queue.RunTimes, []queue.RunTimes] {
	return Shards[[]queue.RunTimes, []queue.RunTimes]{
		prefix: "nomad-pal/history", nomad: s.nomad, codec: asJSON("runs", shrinkRuns), join: concatenated[queue.RunTimes],
		split: sharded(runTimesShards, func(r queue.RunTimes) string { return r.Name }),
	}
}

// sharded returns a function that distributes values over shards by the hash of their names.
func sharded[T any](shards uint32, name func(T) string) func([]T) (map[string][]T, error) {
	return func(all []T) (map[string][]T, error) {
		out := map[string][]T{}
		for _, v := range all {
			f := fnv.New32a()
			f.Write([]byte(name(v)))
			i := strconv.Itoa(int(f.Sum32() % shards))
			out[i] = append(out[i], v)
		}
		return out, nil
	}
}

func shrinkRuns(shard *[]queue.RunTimes) bool {
	halves := make([]queue.RunTimes, 0, len(*shard))
	for _, past := range *shard {
		if len(past.Runs) > 1 {
			past.Runs = past.Runs[len(past.Runs)/2:]
			halves = append(halves, past)
		}
	}
	*shard = halves
	return true
}

// Failures contains the stored failures, oldest first. Failures also contains Nomad's index of the
// last failure that was dropped.
type Failures struct {
	Kept    []palapi.Failure
	Dropped uint64
}

// Failures returns the variable with the newest failures.
func (s Store) Failures() Variable[Failures] {
	kept := asJSON[[]palapi.Failure]("json", nil)
	return Variable[Failures]{FailuresPath, s.nomad, codec[Failures]{
		encode: func(f Failures) (items, error) {
			is, err := kept.encode(f.Kept)
			if f.Dropped > 0 {
				is["dropped"] = strconv.FormatUint(f.Dropped, 10)
			}
			return is, err
		},
		decode: func(is items) (f Failures, err error) {
			if f.Kept, err = kept.decode(is); err == nil && is["dropped"] != "" {
				f.Dropped, err = strconv.ParseUint(is["dropped"], 10, 64)
			}
			return f, err
		},
	}}
}

// Quarantine returns the variable with the quarantines of GPUs, by GPU id. The variable contains
// the GPUs that are or were in quarantine.
func (s Store) Quarantine() Variable[map[string]palapi.Quarantine] {
	return Variable[map[string]palapi.Quarantine]{"nomad-pal/quarantine", s.nomad, asJSON[map[string]palapi.Quarantine]("json", nil)}
}

// Controls returns the variables with the orders that users have given about jobs, such as holds
// and priorities. The keys are namespace/id. Each namespace has a variable of its own, so the
// orders of one namespace take no space from the orders of another. See [Store.ControlsOf].
func (s Store) Controls() Shards[map[string]gang.Control, map[string]gang.Control] {
	return Shards[map[string]gang.Control, map[string]gang.Control]{
		prefix: controlsPrefix, nomad: s.nomad, codec: asJSON[map[string]gang.Control]("json", nil),
		join: func(all []map[string]gang.Control) (map[string]gang.Control, error) {
			out := map[string]gang.Control{}
			for _, of := range all {
				maps.Copy(out, of)
			}
			return out, nil
		},
	}
}

// ControlsOf returns the variable with the orders about the jobs of one namespace.
func (s Store) ControlsOf(namespace string) Variable[map[string]gang.Control] {
	return s.Controls().At(Path(controlsPrefix, namespace))
}

// Usage is the GPU time that each namespace has used until the time At.
type Usage struct {
	At    time.Time     `json:"at"`
	Usage []queue.Usage `json:"usage"`
}

// Usage returns the variable with the GPU time that each namespace has used. Fair share is based on
// the usage. If the value is too large, the second half of the namespaces is left out. The second
// half has the least usage, because writers sort the namespaces by usage.
func (s Store) Usage() Variable[Usage] {
	return Variable[Usage]{"nomad-pal/usage", s.nomad, asJSON("usage", func(u *Usage) bool {
		u.Usage = u.Usage[:len(u.Usage)/2]
		return true
	})}
}

// Heartbeat is the status that the active agent writes to Nomad.
type Heartbeat struct {
	// Agent identifies the agent.
	Agent   string `json:"agent"`
	Version string `json:"version"`
	// Address is the URL of the agent's API, or "" if other machines cannot reach the API.
	Address string `json:"address,omitempty"`
	// Since is the time when the agent began to place jobs. Worked is the time when the agent's
	// placer last worked.
	Since  time.Time `json:"since"`
	Worked time.Time `json:"worked"`
	// Trouble is the reason why the agent does not place jobs. Starting is true if the agent has
	// not placed jobs yet. Stopped is true if the agent has shut down.
	Trouble  string `json:"trouble,omitempty"`
	Starting bool   `json:"starting,omitempty"`
	Stopped  bool   `json:"stopped,omitempty"`
	// Warnings describe problems that operators should fix, although the agent can place jobs.
	Warnings []string `json:"warnings,omitempty"`
}

// Heartbeat returns the variable with the heartbeat of the active agent.
func (s Store) Heartbeat() Variable[Heartbeat] {
	return Variable[Heartbeat]{"nomad-pal/agent", s.nomad, asJSON[Heartbeat]("json", nil)}
}

// Profile returns the shards with the current profile. The value is nil if there is no profile.
func (s Store) Profile() Shards[profile.Shard, *profile.Profile] {
	return Shards[profile.Shard, *profile.Profile]{
		prefix: "nomad-pal/profile", nomad: s.nomad,
		codec: codec[profile.Shard]{
			encode: func(shard profile.Shard) (items, error) { return items(shard), nil },
			decode: func(is items) (profile.Shard, error) { return profile.Shard(is), nil },
		},
		join: func(shards []profile.Shard) (*profile.Profile, error) {
			if len(shards) == 0 {
				return nil, nil
			}
			return profile.Join(shards)
		},
		split: func(p *profile.Profile) (map[string]profile.Shard, error) {
			shards, err := p.Shards(Bytes)
			return numbered(shards), err
		},
	}
}

// CheckSource returns an error if measurements cannot be imported under this source name.
func CheckSource(source string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(source) {
		return fmt.Errorf("source %q is not 1 to 64 letters, digits, '-' or '_'", source)
	}
	return nil
}

// Measurements returns the shards with the measurements from one source. [CheckSource] checks the
// source's name. Each variable contains a complete table. If a writer crashes before it has written
// all variables, some rows are old and others are new, but all rows are valid.
func (s Store) Measurements(source string) Shards[[]profile.Sample, []profile.Sample] {
	shards := s.MeasurementsBut("")
	shards.prefix = Path(measurementsPrefix, source)
	shards.split = func(samples []profile.Sample) (map[string][]profile.Sample, error) {
		return numbered(halves(shards.At(""), samples)), CheckSource(source)
	}
	return shards
}

// MeasurementsBut returns the shards with the measurements of all sources except the given one, or
// of all sources if source is "". The shards are read-only and ordered by source. If a GPU appears
// several times, it was measured several times.
func (s Store) MeasurementsBut(source string) Shards[[]profile.Sample, []profile.Sample] {
	but := ""
	if source != "" {
		but = Path(measurementsPrefix, source)
	}
	return Shards[[]profile.Sample, []profile.Sample]{
		prefix: measurementsPrefix, nomad: s.nomad, join: concatenated[profile.Sample], but: but,
		codec: codec[[]profile.Sample]{encode: encodeSamples, decode: decodeSamples},
	}
}

func encodeSamples(samples []profile.Sample) (items, error) {
	var b bytes.Buffer
	err := measured.WriteCSV(&b, samples)
	return items{"csv": b.String()}, err
}

func decodeSamples(is items) ([]profile.Sample, error) {
	rows, err := measured.ReadCSV("its table", strings.NewReader(is["csv"]), "")
	samples := make([]profile.Sample, len(rows))
	for i, r := range rows {
		samples[i] = r.Sample
	}
	return samples, err
}

// halves splits values into halves, until each piece either fits into a variable or is a single
// value.
func halves[T any](v Variable[[]T], all []T) [][]T {
	if len(all) == 0 {
		return nil
	}
	if _, err := v.fit(&all); err == nil || len(all) == 1 {
		return [][]T{all}
	}
	return append(halves(v, all[:len(all)/2]), halves(v, all[len(all)/2:])...)
}

// numbered gives the shards the names 0000, 0001, and so on.
func numbered[T any](shards []T) map[string]T {
	out := map[string]T{}
	for i, shard := range shards {
		out[fmt.Sprintf("%04d", i)] = shard
	}
	return out
}

func whole[T any](all []T) ([]T, error)          { return all, nil }
func concatenated[T any](all [][]T) ([]T, error) { return slices.Concat(all...), nil }
