// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/research/published"
	"github.com/nomad-pal/nomad-pal/sim/trace"
)

// day is one day in seconds.
const day = 86400.0

// generated returns workloads of kinds that the traces lack. Rules are chosen with the workloads of
// one seed; results are reported for the workloads of other seeds.
func generated(seed uint64, p part) []source {
	var found []source
	for _, g := range []struct {
		name string
		make func(*rand.Rand) []trace.Job
	}{
		{"heavy tails", heavyTails}, {"sweeps", sweeps}, {"diurnal", diurnal}, {"wide behind small", wideBehindSmall},
	} {
		t := trace.Trace{Name: fmt.Sprintf("%s, seed %d", g.name, seed), Jobs: g.make(rand.New(rand.NewPCG(seed, 0x90e5)))}
		t.Rebase()
		for i := range t.Jobs {
			t.Jobs[i].ID, t.Jobs[i].IterTimeS = fmt.Sprint(i), 1
		}
		found = append(found, source{t, p})
	}
	return found
}

// classOf spreads names over the classes.
func classOf(i int) pal.AppClass { return pal.AppClasses()[i%len(pal.AppClasses())] }

// lognormal draws a run time with this median, in seconds: at least 20 s, and at most two weeks.
func lognormal(r *rand.Rand, medianS, sigma float64) float64 {
	return math.Ceil(min(14*day, max(20, medianS*math.Exp(sigma*r.NormFloat64()))))
}

// width draws a power of two; half of the jobs have one GPU.
func width(r *rand.Rand) int {
	return []int{1, 1, 1, 1, 1, 2, 2, 4, 8, 16}[r.IntN(10)]
}

// heavyTails returns jobs whose names say little about run times, because each name has both short
// failures and runs of days.
func heavyTails(r *rand.Rand) (jobs []trace.Job) {
	at := 0.0
	for range usersJobs {
		name := r.IntN(60)
		work := lognormal(r, 600*float64(1+name%7), 2.2)
		if r.Float64() < 0.3 {
			work = lognormal(r, 60, 0.5) // the job soon fails
		}
		at += r.ExpFloat64() * 600
		jobs = append(jobs, trace.Job{Name: fmt.Sprintf("train-%d", name), Tenant: fmt.Sprintf("team-%d", name%6), Class: classOf(name),
			GPUs: width(r), SubmitS: at, Iterations: work})
	}
	return jobs
}

// sweeps returns jobs of users who submit 10 to 59 runs of one name at once. The runs of one sweep
// have similar run times. The run times of two sweeps of the same name can differ widely.
func sweeps(r *rand.Rand) (jobs []trace.Job) {
	at := 0.0
	for len(jobs) < usersJobs {
		name := r.IntN(15)
		gpus, median := []int{1, 1, 2, 4}[r.IntN(4)], lognormal(r, 1800, 1.3)
		for k := range 10 + r.IntN(50) {
			jobs = append(jobs, trace.Job{Name: fmt.Sprintf("sweep-%d", name), Tenant: fmt.Sprintf("user-%d", name), Class: classOf(name),
				GPUs: gpus, SubmitS: at + 5*float64(k), Iterations: lognormal(r, median, 0.3)})
		}
		for range 6 { // other jobs in between, each with its own name
			at += r.ExpFloat64() * 3000
			jobs = append(jobs, trace.Job{Name: fmt.Sprintf("once-%d", len(jobs)), Tenant: "others", Class: classOf(len(jobs)),
				GPUs: width(r), SubmitS: at, Iterations: lognormal(r, 2400, 1.8)})
		}
	}
	return jobs
}

// diurnal returns jobs that arrive five times as often by day as by night, and less often at
// weekends. Long jobs arrive in the evening.
func diurnal(r *rand.Rand) (jobs []trace.Job) {
	at := 0.0
	for len(jobs) < usersJobs {
		at += r.ExpFloat64() * 300
		hour, weekday := math.Mod(at/3600, 24), int(at/day)%7
		busy := 0.6 + 0.4*math.Sin((hour-8)/24*2*math.Pi)
		if weekday >= 5 {
			busy /= 3
		}
		if r.Float64() > busy {
			continue
		}
		name, median := r.IntN(40), 1200.0
		if hour > 17 {
			median = 12000
		}
		jobs = append(jobs, trace.Job{Name: fmt.Sprintf("job-%d", name), Tenant: fmt.Sprintf("team-%d", name%5), Class: classOf(name),
			GPUs: width(r), SubmitS: at, Iterations: lognormal(r, median*float64(1+name%5)/2, 1.4)})
	}
	return jobs
}

// wideBehindSmall returns a steady stream of small jobs and, from time to time, a gang of 16 to 32
// GPUs. The smallest cluster has 32 GPUs.
func wideBehindSmall(r *rand.Rand) (jobs []trace.Job) {
	at := 0.0
	for i := range usersJobs {
		at += r.ExpFloat64() * 300
		j := trace.Job{Name: fmt.Sprintf("small-%d", r.IntN(20)), Tenant: "small", Class: classOf(i), GPUs: 1 + r.IntN(2), SubmitS: at, Iterations: lognormal(r, 5400, 0.8)}
		if i%40 == 20 {
			j.Name, j.Tenant, j.GPUs, j.Iterations = "wide", "wide", []int{16, 24, 32}[r.IntN(3)], lognormal(r, 5400, 0.6)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// gavel reads the virtual clusters in gavel/. Each job's run time is the time of its steps at the
// speed measured on V100s. If nobody measured the speed with the job's number of GPUs, the speed is
// estimated.
func gavel(dir string) (found []source, err error) {
	speeds, err := published.Table(filepath.Join(dir, "gavel", "throughputs.csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	speed := map[string]float64{}
	for _, r := range speeds {
		if v, err := strconv.ParseFloat(r["steps_per_s"], 64); err == nil && r["gpu"] == "v100" && v > 0 {
			speed[r["job"]+"|"+r["gpus"]] = max(speed[r["job"]+"|"+r["gpus"]], v)
		}
	}
	for i, vc := range []string{"0e4a51", "103959", "7f04ca", "ed69ec"} {
		lines, err := published.Table(filepath.Join(dir, "gavel", vc+"-seed0.csv"))
		if err != nil {
			return nil, err
		}
		t := trace.Trace{Name: "Gavel " + vc}
		for k, r := range lines {
			v := speed[r["job"]+"|"+r["gpus"]]
			at, err1 := strconv.ParseFloat(r["submit_s"], 64)
			steps, err2 := strconv.ParseFloat(r["steps"], 64)
			gpus, err3 := strconv.Atoi(r["gpus"])
			if errors.Join(err1, err2, err3) != nil {
				return nil, fmt.Errorf("gavel %s, line %d: %w", vc, k+2, errors.Join(err1, err2, err3))
			}
			if v == 0 {
				v = speed[r["job"]+"|1"] * float64(gpus) * 0.8
			}
			if v > 0 {
				t.Jobs = append(t.Jobs, trace.Job{ID: fmt.Sprint(k), Name: r["job"], Tenant: vc, Class: classOf(len(r["job"])), GPUs: gpus, SubmitS: at, Iterations: math.Ceil(steps / v), IterTimeS: 1})
			}
		}
		t.Rebase()
		found = append(found, source{t, []part{chosen, reported}[min(i, 1)]})
	}
	return found, nil
}

// workloads returns all workloads of the bench of users: the first jobs of each trace, and
// generated workloads.
func workloads(dir string) ([]source, error) {
	found, _, err := find(dir)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s source) bool { return s.part == whole })
	for i, s := range found {
		if s.part == sia {
			found[i].part = []part{chosen, chosen, reported}[min(i, 2)]
		}
	}
	more, err := gavel(dir)
	if err != nil {
		return nil, err
	}
	found = slices.Concat(found, more, generated(1, chosen), generated(2, reported), generated(3, reported))
	for i := range found {
		js := found[i].trace.Jobs
		found[i].trace.Jobs = js[:min(len(js), usersJobs)]
	}
	return found, nil
}

// usersJobs is the maximum number of jobs of a trace in the bench of users.
const usersJobs = 1500
