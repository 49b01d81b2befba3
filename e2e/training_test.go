// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/prometheus/procfs"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/e2e/cluster/clustertest"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// The trainings of these tests: four ranks on CPUs, with gloo.
const (
	trainRanks = 4
	trainSteps = 200
)

// trainer runs the training jobs of jobspecs/ with a real PyTorch. Only the driver differs from what
// people run: processes instead of containers, because there is no image with PyTorch here.
type trainer struct {
	*bed
	outer  *bed   // of the test that ends last: its agent outlives the stories
	shared string // what containers see as /shared
	path   string // PATH of the tasks
	steps  int
	loss   string // the last loss of a training that nobody stopped
	costs  *[]cost
}

// cost is what one stop cost a training.
type cost struct {
	what       string
	end, start time.Duration // from the stop to the end of the last task; from the start of the new tasks to the first step
	again      int           // steps done again
	hasEnd     bool
}

// TestTraining: trainings go on where they stopped, whatever stops them, and end with the loss of a
// training that nobody stopped.
func TestTraining(t *testing.T) {
	onlyLong(t)
	python := pythonWithTorch(t)
	shared := t.TempDir()
	inventories := inventoriesOf([][]float64{{1, 1}, {1, 1}, {1, 1}})
	b := newBedOf(t, inventories, cluster.Options{HeartbeatTTL: 5 * time.Second}, func(c *cluster.Client) { c.HCL = sharedVolume(shared) })
	b.config = fmt.Sprintf("retries = 1\nqueue {\n  restart_cost = \"2s\"\n}\nhistory {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db"))
	b.startAgent("nomad-pal")
	m := newTrainer(b, python, shared, trainSteps)
	m.loss = m.uninterrupted(python)
	for _, story := range []struct {
		name string
		tell func(*trainer)
	}{{"ranks", trainsOn}, {"mpi", trainsUnderLauncher("mpi", "orted")}, {"torchrun", trainsUnderLauncher("torchrun", "torchrun")}} {
		t.Run(story.name, func(t *testing.T) {
			sub, b := *m, *m.bed
			b.t, sub.bed = t, &b
			story.tell(&sub)
		})
	}
	m.reportCosts()
}

// sharedVolume is the configuration of a client with the volume "shared".
func sharedVolume(path string) string {
	return fmt.Sprintf("client {\n  host_volume \"shared\" {\n    path = %q\n  }\n}\n", path)
}

// newTrainer copies the program to the shared directory, as its users do.
func newTrainer(b *bed, python, shared string, steps int) *trainer {
	b.t.Helper()
	m := &trainer{bed: b, outer: b, shared: shared, path: programsOfImage(b.t, python), steps: steps, costs: new([]cost)}
	text, err := os.ReadFile("../jobspecs/train.py")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(m.program(), text, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// pythonWithTorch returns a python that has PyTorch.
func pythonWithTorch(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import torch.distributed").Run() == nil {
			path, err := exec.LookPath(python)
			if err != nil {
				t.Fatal(err)
			}
			return path
		}
	}
	needs(t, "a python3 with PyTorch: on Debian, apt-get install python3-torch openmpi-bin")
	return ""
}

// needs skips a test, or fails it in CI, which has everything.
func needs(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("TRAINING_REQUIRED") != "" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}

// programsOfImage returns a PATH with the programs that an image of PyTorch has, and not the
// stand-ins of other tests. Debian's torchrun works with Python 3.11 only if it also writes its
// output to files.
func programsOfImage(t *testing.T, python string) string {
	t.Helper()
	dir := t.TempDir()
	for name, args := range map[string]string{
		"python": `"$@"`, "torchrun": fmt.Sprintf(`-m torch.distributed.run --redirects 1 --tee 1 --log_dir %q "$@"`, dir),
	} {
		// Unlike a container, a process sees all GPUs of the machine.
		text := fmt.Sprintf("#!/bin/sh\nexport CUDA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES\nexec %s %s\n", python, args)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":/usr/local/bin:/usr/bin:/bin"
}

func (m *trainer) program() string { return filepath.Join(m.shared, "train.py") }

// settings are the environment of a training.
func (m *trainer) settings(job string, seconds float64) map[string]string {
	return map[string]string{
		"STEPS": strconv.Itoa(m.steps), "STEP_SECONDS": fmt.Sprint(seconds), "OMP_NUM_THREADS": "1",
		"CHECKPOINT": filepath.Join(m.shared, job+".pt"), "CHECKPOINT_EVERY": "3",
	}
}

// uninterrupted trains without Nomad, and returns the last loss.
func (m *trainer) uninterrupted(python string) string {
	m.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	out := make([]bytes.Buffer, trainRanks)
	ranks := make([]*exec.Cmd, trainRanks)
	for i := range ranks {
		ranks[i] = exec.Command(python, m.program())
		ranks[i].Env = append(os.Environ(), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, fmt.Sprint("RANK=", i), fmt.Sprint("WORLD_SIZE=", trainRanks))
		for k, v := range m.settings("uninterrupted", 0) {
			ranks[i].Env = append(ranks[i].Env, k+"="+v)
		}
		ranks[i].Stdout, ranks[i].Stderr = &out[i], &out[i]
		if err := ranks[i].Start(); err != nil {
			m.t.Fatal(err)
		}
	}
	ctx, ended := patience.Context(m.t.Context(), patience.Long)
	defer ended()
	defer context.AfterFunc(ctx, func() {
		for _, r := range ranks {
			_ = r.Process.Kill()
		}
	})()
	for i, r := range ranks {
		if err := r.Wait(); err != nil {
			m.t.Fatalf("rank %d: %v\n%s", i, err, &out[i])
		}
	}
	r := readRun(out[0].String())
	if r.from != 1 || r.last() != trainSteps || r.loss[trainSteps] >= r.loss[1] {
		m.t.Fatalf("it trains from step %d to %d; the loss falls from %s to %s", r.from, r.last(), r.loss[1], r.loss[trainSteps])
	}
	return r.loss[trainSteps]
}

// submit runs a job of jobspecs/ with values for its variables.
func (m *trainer) submit(name string, vars ...string) *api.Job {
	m.t.Helper()
	job := jobspecFile(m.t, "../jobspecs/"+name+".nomad.hcl", m.shared, vars...)
	task := job.TaskGroups[0].Tasks[0]
	maps.Copy(task.Env, m.settings(name, 0.1))
	task.Env["PATH"] = m.path
	task.Resources.CPU, task.Resources.MemoryMB = new(100), new(2000)
	register(m.t, m.Cluster, job)
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.logAllocs(name)
			m.logOutputs(name)
		}
	})
	return job
}

// trainRun is what rank 0 printed in one of a training's runs.
type trainRun struct {
	from  int // the first step
	steps []int
	loss  map[int]string
	saved int // the step of the last checkpoint that this run wrote
}

func (r trainRun) last() int {
	if len(r.steps) == 0 {
		return 0
	}
	return r.steps[len(r.steps)-1]
}

var (
	beginsAt = regexp.MustCompile(`runs from step (\d+) of`)
	stepDone = regexp.MustCompile(`step (\d+) of \d+: loss (\S+)\n`)
	saves    = regexp.MustCompile(`checkpoint after step (\d+)\n`)
)

func readRun(out string) trainRun {
	r := trainRun{loss: map[int]string{}}
	if found := beginsAt.FindStringSubmatch(out); found != nil {
		r.from, _ = strconv.Atoi(found[1])
	}
	for _, found := range stepDone.FindAllStringSubmatch(out, -1) {
		step, _ := strconv.Atoi(found[1])
		r.steps, r.loss[step] = append(r.steps, step), found[2]
	}
	for _, found := range saves.FindAllStringSubmatch(out, -1) {
		r.saved, _ = strconv.Atoi(found[1])
	}
	return r
}

// printed is what an allocation's task printed. It reads the client's files, because a killed client
// does not answer.
func (m *trainer) printed(alloc, name string) string {
	var text strings.Builder
	files, _ := filepath.Glob(filepath.Join(m.Dir, "*", "data", "alloc", alloc, "alloc", "logs", "[a-z]*."+name+".[0-9]*")) // without named pipes
	slices.Sort(files)
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err == nil {
			text.Write(body)
		}
	}
	return text.String()
}

func (m *trainer) logOutputs(job string) {
	for _, a := range m.allocsOf(job) {
		for _, name := range []string{"stdout", "stderr"} {
			lines := strings.Split(m.printed(a.ID, name), "\n")
			m.t.Logf("%s %s %s: %s", a.Name, a.ID, name, strings.Join(lines[max(0, len(lines)-12):], "\n"))
		}
	}
}

// allocs are a job's allocations, oldest first.
func (b *bed) allocsOf(job string) []*api.AllocationListStub {
	b.t.Helper()
	stubs, _, err := b.API().Jobs().Allocations(job, true, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.SortFunc(stubs, func(a, b *api.AllocationListStub) int { return int(a.CreateIndex) - int(b.CreateIndex) })
	return stubs
}

// runs are a training's runs, oldest first.
func (m *trainer) runs(job string) (runs []trainRun) {
	m.t.Helper()
	for _, a := range m.allocsOf(job) {
		if strings.HasSuffix(a.Name, "[0]") {
			if r := readRun(m.printed(a.ID, "stdout")); r.from > 0 {
				runs = append(runs, r)
			}
		}
	}
	return runs
}

// untilSteps waits until a training's n-th run has done some steps.
func (m *trainer) untilSteps(job string, n, steps int) trainRun {
	m.t.Helper()
	var r trainRun
	m.until(fmt.Sprintf("run %d of %s has done %d steps", n, job, steps), func() string {
		runs := m.runs(job)
		if len(runs) < n || len(runs[n-1].steps) < steps {
			if why := m.explain(job); why.State == "failed" || why.State == "ended" {
				m.t.Fatalf("%s has ended: %s", job, why.Reason)
			}
			return fmt.Sprintf("%d runs: %+v", len(runs), runs)
		}
		r = runs[n-1]
		return ""
	})
	return r
}

// tasksOf are the processes of an allocation.
func (m *trainer) tasksOf(alloc string) (pids []int) {
	m.t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, p := range all {
		env, _ := p.Environ() // empty if the process has ended
		if slices.Contains(env, "NOMAD_ALLOC_ID="+alloc) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// kill ends all processes of a member.
func (m *trainer) kill(a *api.AllocationListStub) {
	m.t.Helper()
	for _, pid := range m.tasksOf(a.ID) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// member returns a running member.
func (m *trainer) member(job string, index int) *api.AllocationListStub {
	m.t.Helper()
	for _, a := range slices.Backward(m.allocsOf(job)) {
		if a.ClientStatus == "running" && strings.HasSuffix(a.Name, fmt.Sprintf("[%d]", index)) {
			return a
		}
	}
	m.t.Fatalf("member %d of %s does not run", index, job)
	return nil
}

// stopped is a training that something stopped, and that has gone on.
type stopped struct {
	what   string
	at     time.Time // when it was stopped
	wrote  bool      // it had the time for a checkpoint
	newRun int       // number of the run that went on
}

// goesOn waits until a training has gone on, and checks that it did with the right step.
func (m *trainer) goesOn(job string, s stopped) {
	m.t.Helper()
	now := m.untilSteps(job, s.newRun, 1)
	first := time.Now()
	runs := m.runs(job)
	was, saved := runs[s.newRun-2], 0
	for _, r := range runs[:s.newRun-1] {
		saved = max(saved, r.saved)
	}
	if now.from != saved+1 {
		m.t.Errorf("%s: the last checkpoint was after step %d, but it goes on with step %d", s.what, saved, now.from)
	}
	if s.wrote && was.last() != was.saved {
		m.t.Errorf("%s: it stopped after step %d, with a checkpoint after step %d", s.what, was.last(), was.saved)
	}
	c := cost{what: job + ": " + s.what, again: was.last() - saved}
	var began time.Time
	for _, a := range m.allocsOf(job) {
		full, _, err := m.API().Allocations().Info(a.ID, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, state := range full.TaskStates {
			if state.FinishedAt.After(s.at) {
				c.end, c.hasEnd = max(c.end, state.FinishedAt.Sub(s.at)), true
			}
			if a.ClientStatus == "running" && (began.IsZero() || state.StartedAt.Before(began)) {
				began = state.StartedAt
			}
		}
	}
	c.start = first.Sub(began)
	m.t.Logf("%+v; %v from the stop to the first step", c, first.Sub(s.at))
	*m.costs = append(*m.costs, c)
}

// ends waits for a training's end, and checks that its last loss is that of a training that nobody
// stopped.
func (m *trainer) ends(job string, runs int) {
	m.t.Helper()
	m.until(job+" is complete", func() string {
		info, _, err := m.API().Jobs().Info(job, nil)
		if err != nil || *info.Status != "dead" {
			return fmt.Sprintf("%v; %s", err, m.explain(job).Reason)
		}
		return ""
	})
	all := m.runs(job)
	if len(all) != runs {
		m.t.Errorf("%d runs, want %d: %+v", len(all), runs, all)
	}
	// Not equal to the last bit: in a run's first step, PyTorch has the gradients in another order.
	if got := all[len(all)-1].loss[trainSteps]; !(math.Abs(lossOf(got)-lossOf(m.loss)) <= 1e-5) { // also if there is no loss
		m.t.Errorf("the last loss is %q, without a stop %q", got, m.loss)
	}
	for step := range trainSteps {
		if !slices.ContainsFunc(all, func(r trainRun) bool { return r.loss[step+1] != "" }) {
			m.t.Errorf("step %d is missing", step+1)
		}
	}
}

func lossOf(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// trainsOn: a rank is killed, a node is drained, a node is lost, a shorter job stops the training in the middle of a
// step, and the agent is killed meanwhile.
func trainsOn(m *trainer) {
	m.submit("ranks", "ranks=4")
	m.untilSteps("ranks", 1, 20)

	s := stopped{what: "a rank is killed", at: time.Now(), newRun: 2}
	m.kill(m.member("ranks", 2))
	m.goesOn("ranks", s)
	m.untilSteps("ranks", 2, 20)

	// From here on, a failure that counts as the program's own ends the training: retries is 1.
	s = stopped{what: "a node is drained", at: time.Now(), wrote: true, newRun: 3}
	node := m.member("ranks", 1).NodeID
	m.drain(node, &api.DrainSpec{Deadline: -1})
	m.goesOn("ranks", s)
	m.drain(node, nil)
	m.untilSteps("ranks", 3, 30)

	s = stopped{what: "a node is lost", at: time.Now(), newRun: 4}
	lost := m.loseNode(m.member("ranks", 0).NodeName, "ranks")
	m.goesOn("ranks", s)
	m.untilSteps("ranks", 4, 20)

	short := gang("short", 2, 2)
	short.meta, short.script = `pal_duration = "3s"`, "sleep 3"
	s = stopped{what: "a shorter job stops it", at: time.Now(), wrote: true, newRun: 5}
	m.bed.run(short.hcl())
	m.until("the shorter job runs", func() string {
		if ids := m.gpusOf("short"); len(ids) != 4 {
			return fmt.Sprintf("%v: %s", ids, m.explain("short").Reason)
		}
		return ""
	})
	m.untilSays("history -job=ranks -columns=job,stops -csv", "default/ranks,1") // a killed agent cannot count
	m.knowsFailures()
	if err := m.placer.Kill(); err != nil {
		m.t.Fatal(err)
	}
	m.outer.startAgent("nomad-pal")
	m.placer = m.outer.placer
	m.goesOn("ranks", s)

	ctx, cancel := clustertest.Context(m.t, m.Cluster)
	defer cancel()
	if err := lost.Start(ctx); err != nil {
		m.t.Fatal(err)
	}
	m.ends("ranks", 5)
	m.knowsWhy()
}

// drain begins the drain of a node, or lets jobs run there again.
func (m *trainer) drain(node string, spec *api.DrainSpec) {
	m.t.Helper()
	if _, err := m.API().Nodes().UpdateDrain(node, spec, spec == nil, nil); err != nil {
		m.t.Fatal(err)
	}
}

// loseNode kills a client and what it runs.
func (m *trainer) loseNode(name, job string) *cluster.Agent {
	m.t.Helper()
	i := slices.IndexFunc(m.Clients(), func(a *cluster.Agent) bool { return a.Name == name })
	client := m.Clients()[i]
	if err := client.Kill(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	for _, a := range m.allocsOf(job) {
		if a.NodeName == name {
			m.kill(a)
		}
	}
	return client
}

// knowsWhy: history shows how often the training was stopped; events show what the agent did since its start.
func (m *trainer) knowsWhy() {
	m.t.Helper()
	m.untilSays("history -job=ranks -columns=job,state,stops -csv", "default/ranks,complete,1")
	out, _ := m.pal("history", "-job=ranks")
	m.t.Logf("%s", out)
	out, _ = m.pal("events", "-job=ranks")
	m.t.Logf("%s", out)
}

// knowsFailures: events show why the training failed. A restart of the agent forgets them.
func (m *trainer) knowsFailures() {
	m.t.Helper()
	out, _ := m.pal("events", "-failures", "-job=ranks")
	m.t.Logf("%s", out)
	mentions(m.t, out, "by signal 9 (killed)", "the node went down")
}

// trainsUnderLauncher: people requeue a training, and kill a member, under a launcher.
func trainsUnderLauncher(name, process string) func(*trainer) {
	return func(m *trainer) {
		if _, err := exec.LookPath("mpirun"); err != nil && name == "mpi" {
			needs(m.t, "Open MPI: on Debian, apt-get install openmpi-bin")
		}
		m.submit(name, "nodes=2", "gpus=2")
		m.untilSteps(name, 1, 20)
		s := stopped{what: "requeue", at: time.Now(), wrote: true, newRun: 2}
		if out, code := m.pal("requeue", name); code != 0 {
			m.t.Fatalf("requeue: exit code %d\n%s", code, out)
		}
		m.goesOn(name, s)
		m.untilSteps(name, 2, 20)
		s = stopped{what: "a member is killed", at: time.Now(), newRun: 3}
		m.kill(m.member(name, 1))
		m.goesOn(name, s)
		m.ends(name, 3)
	}
}

// reportCosts prints what stops cost, and writes it into the page that TRAINING_REPORT names.
func (m *trainer) reportCosts() {
	text := fmt.Sprintf("%s, %d CPUs:\n\n%s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), costTable(*m.costs))
	m.t.Logf("%s", text)
	path := os.Getenv("TRAINING_REPORT")
	if path == "" || m.t.Failed() || len(*m.costs) < 8 { // only some stories ran
		return
	}
	page, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	const from, to = "<!-- written by make training-report -->\n", "<!-- end of what make training-report writes -->\n"
	out, err := replaceBetween(string(page), from, to, text)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func costTable(costs []cost) string {
	var s strings.Builder
	s.WriteString("| what stops the training | until its last task has ended | from the new start to the first step | steps done again |\n|---|---|---|---|\n")
	for _, c := range costs {
		end := "–"
		if c.hasEnd {
			end = fmt.Sprintf("%.1f s", c.end.Seconds())
		}
		fmt.Fprintf(&s, "| %s | %s | %.1f s | %d |\n", c.what, end, c.start.Seconds(), c.again)
	}
	return s.String()
}
