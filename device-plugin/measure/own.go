// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Own measures with a user's own program: one run is the unit of work, and the application's name
// takes the place of the class.
type Own struct {
	App     string
	Command string // run by sh -c
	Repeat  int
	// Pattern finds the time in the program's output: the first group of the last match. If Pattern
	// is nil, the time is the program's wall-clock time.
	Pattern *regexp.Regexp
	Timeout time.Duration // time limit of one run
}

// Session runs the program Repeat times on one GPU. The program can see only this GPU. If a run
// fails, the session ends and returns the results of the earlier runs, marked partial.
func (o Own) Session(ctx context.Context, t Target, progress func(Progress)) Result {
	s := newSession(Runner{}, t, Plan{Limit: time.Duration(o.Repeat) * o.Timeout}, progress)
	s.work = map[pal.AppClass]string{pal.ClassA: "own:" + o.App + "*" + o.Command}
	s.result.Key = s.key()
	var ws []Repetition
	for i := range o.Repeat {
		s.tell(fmt.Sprintf("%s, run %d of %d", o.App, i+1, o.Repeat))
		seconds, err := o.once(ctx, t.Device.ID)
		if err != nil {
			s.result.Partial, s.result.Problem = true, fmt.Sprintf("run %d of %d: %v", i+1, o.Repeat, err)
			break
		}
		ws = append(ws, Repetition{Ms: 1000 * seconds, Units: 1})
	}
	if len(ws) > 0 {
		sum := summarize(kept(ws))
		s.result.Apps = append(s.result.Apps, App{App: pal.AppClass(o.App), Kernel: "command", Work: o.Command, Windows: ws,
			Ms: sum.Median, Sigma: sum.Sigma, CI: math.Min(1, sum.CI), LimitedBy: LimitUnknown, Converged: sum.CI <= 0.01})
	}
	s.result.Seconds = math.Round(10*time.Since(s.started).Seconds()) / 10
	return s.result
}

// once runs the program once and returns the time in seconds.
func (o Own) once(ctx context.Context, gpu string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", o.Command)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+gpu, "NVIDIA_VISIBLE_DEVICES="+gpu)
	inGroup(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start).Seconds()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, fmt.Errorf("command %q took more than %s", o.Command, o.Timeout)
	case ctx.Err() != nil:
		return 0, errors.New(interrupted)
	case err != nil:
		return 0, fmt.Errorf("command %q: %w%s", o.Command, err, lastLine(out.String()))
	case o.Pattern == nil:
		return wall, nil
	}
	return o.find(out.String())
}

// find returns the time that the program's output reports.
func (o Own) find(out string) (float64, error) {
	all := o.Pattern.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("command %q prints no time: nothing in its output matches %q%s", o.Command, o.Pattern, lastLine(out))
	}
	text := all[len(all)-1][1]
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("command %q prints the time %q, which is not a positive number", o.Command, text)
	}
	return x, nil
}

// lastLine returns the last line of an output, for an error message.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Sprintf(" (its last line: %q)", last)
	}
	return ""
}
