// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// A spreadsheet takes a text for a formula if the text begins with one of certain characters. Such a
// formula could send data away. Authors choose names of users, and nodes choose names of GPU models.
func TestNoFormulas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@A1": "'@A1", "\t=1": "'\t=1", "ann": "ann", "": "", "a=b": "a=b",
	} {
		if got := csvCell(text); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	var out strings.Builder
	b := &base{io: streams{out: &out}}
	printUsageCSV(b, []palapi.Usage{{Of: []string{"research", "=cmd()"}}}, []string{"namespace", "user"})
	if !strings.Contains(out.String(), "\nresearch,'=cmd(),0.00") {
		t.Error(out.String())
	}
}

// history lists runs and usage sums them up, as tables, CSV and JSON.
func TestHistoryAndUsage(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort+fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(t.TempDir(), "history.db")))
	c.must("run", c.job("default", "train", 2))
	if code, _, err := c.does("run", "-detach", c.job("default", "waits", 64)); code == 1 {
		t.Fatal(err)
	}
	recorded := func(rows ...string) func() bool {
		return func() bool {
			_, out, _ := c.does("history", "-csv", "-columns=job,state,ended")
			return !slices.ContainsFunc(rows, func(row string) bool { return !strings.Contains(out, row) })
		}
	}
	c.until("the runs are recorded", recorded("default/train,running,", "default/waits,pending,"))
	for args, want := range map[string]string{
		"history -job=tra -columns=job,state,gpus,class,model": `(?m)^Job +State +GPUs +Class +Model\ndefault/train +running +2 +B +NVIDIA H200$`,
		"history -csv -job=train -columns=job,ended,waited":    `^job,ended,waited\ndefault/train,,[0-9.]+\n$`,
		"history -job=none": `^No runs\.\n$`,
		"history -limit=1":  `Not more than 1 run; -limit 0 shows all\.\n$`,
		"history -since=1h -until=2100-01-01 -job=train": `default/train`,
		"history -until=1h":             `^No runs\.\n$`,
		"history -by=namespace,user":    `(?m)^Namespace +User +GPU hours +Failed +In vain +Idle +Saved +Runs +Failed runs +Waited \(h\) +Stops +Lost +Sooner \(h\)\ndefault +- +\d`,
		"history -by=model,class -csv":  `^model,class,gpu_hours,failed_gpu_hours,held_in_vain_gpu_hours,idle_gpu_hours,saved_gpu_hours,runs,failed,waited_hours,stops,stops_lost_gpu_hours,stops_saved_wait_hours\nNVIDIA H200,B,`,
		"history -by=user -user=nobody": `^No runs\.\n$`,
	} {
		if code, out, err := c.does(strings.Fields(args)...); code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s: %d\n%s%s", args, code, out, err)
		}
	}
	c.says(1, "1 still running", "simulate", "-from-history")
	c.must("cancel", "train")
	c.until("its end is recorded", recorded("default/train,stopped,2")) // stopped, but without an end, while members live
	if code, out, err := c.does("simulate", "-from-history", "-since=1h", "-json"); code != 0 || !strings.Contains(out, `"trace": "the agent's history"`) || !strings.Contains(out, `"id": "default/train@`) || !strings.Contains(out, `"gpus": 8`) {
		t.Errorf("simulate -from-history: %d %s%s", code, out, err)
	}
	for args, want := range map[string]string{
		"history -since=yesterday":                "-since yesterday: is not a duration such as 7d",
		"history -state=gone":                     "-state: \"gone\" is none of pending, running, complete, failed, stopped, unknown",
		"history -columns=color":                  `-columns: "color" is none of job, user, state`,
		"history -csv -json":                      "-csv cannot be combined with -json",
		"history -limit=-1":                       "-limit -1 is negative",
		"simulate -from-history -since=yesterday": "-since yesterday: is not a duration such as 7d",
		"history -by=user -limit=3":               "-by cannot be combined with -limit",
		"history -by=color":                       `-by: "color" is none of namespace, user, class, model, day, month`,
	} {
		c.says(1, want, strings.Fields(args)...)
	}
}

// An agent whose history cannot be opened still answers: the problem is not the agent's.
func TestHistoryOutOfReach(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	c.agent("", atAnyPort+fmt.Sprintf("history {\n  database = %q\n}\n", filepath.Join(file, "history.db")))
	c.until("the error says where the cause is told", func() bool {
		code, _, said := c.does("history", "-by=user")
		if strings.Contains(said, "no agent answers") {
			t.Fatalf("%d %s", code, said)
		}
		return code == 1 && strings.Contains(said, "answers: the history can be neither read nor written; see the agent's log and health")
	})
}

// Times may be given as durations, dates, and dates with times.
func TestTimeOf(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"1d": now.Add(-24 * time.Hour), "90m": now.Add(-90 * time.Minute), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local),
		"2026-11-01T08:00": time.Date(2026, 11, 1, 8, 0, 0, 0, time.Local), "2026-11-01T08:00:00Z": time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC),
		"2026-13-01": {}, "now": {}, "-1d": {},
	} {
		if got, err := timeOf(text, now); !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
}

// A run that waits has the time that it has waited so far, in the table and in CSV.
func TestWaitedSoFar(t *testing.T) {
	now := time.Now()
	waits := palapi.Run{Submitted: now.Add(-90 * time.Second)}
	for _, c := range runColumns() {
		if value := c.value(waits, now); c.name == "waited" && (cell(value) != "1m30s" || csvCell(value) != "90") {
			t.Errorf("%q, CSV %q", cell(value), csvCell(value))
		}
	}
}
