// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// The placer checks a job against every node, and again when nodes change. What one
// author can make that take is bounded: a job with a hundred groups and a long
// regular expression in each took it 6 s on 200 nodes.
const (
	// maxGroups and maxConditions bound a job's task groups, and its constraints and
	// affinities at all levels.
	maxGroups     = 1000
	maxConditions = 1000
	// maxProgram bounds a regular expression, in steps of its program: those in use
	// have tens.
	maxProgram = 500
	// patternsKept is more than the conditions of one job.
	patternsKept = 2 * maxConditions
)

var errConditions = fmt.Errorf("it has more than %d constraints and affinities: the placer takes no more", maxConditions)

var errPattern = fmt.Errorf("the regular expression is too large: its program has more than %d steps", maxProgram)

// pattern is a regular expression, or why it is none.
type pattern struct {
	*regexp.Regexp
	err error
}

// patterns are those that were compiled, by their text; all are forgotten when there
// are too many.
var patterns = struct {
	sync.Mutex
	known map[string]pattern
}{known: map[string]pattern{}}

// compiled is the regular expression, compiled once.
func compiled(text string) (*regexp.Regexp, error) {
	patterns.Lock()
	defer patterns.Unlock()
	p, ok := patterns.known[text]
	if !ok {
		if len(patterns.known) >= patternsKept {
			clear(patterns.known)
		}
		p.Regexp, p.err = compile(text)
		patterns.known[text] = p
	}
	return p.Regexp, p.err
}

func compile(text string) (*regexp.Regexp, error) {
	if len(text) > 10*maxProgram {
		return nil, errPattern
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if size(parsed) > maxProgram {
		return nil, errPattern
	}
	return regexp.Compile(text)
}

// size is about how many steps the program has, up to some more than maxProgram.
func size(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n = min(n+size(sub), maxProgram+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return min(n, maxProgram+1)
}

// tooMuch is why checking a job takes too much, for its author; nil where it does not.
func tooMuch(job *api.Job) error {
	if n := len(job.TaskGroups); n > maxGroups {
		return fmt.Errorf("it has %d task groups: the placer takes %d at most", n, maxGroups)
	}
	var err error
	n := 0
	check := func(operand, text string) {
		if n++; n > maxConditions {
			err = errConditions
		} else if err == nil {
			err = tooLarge(operand, text)
		}
	}
	count := func(cs []*api.Constraint, as []*api.Affinity) {
		for _, c := range cs {
			check(c.Operand, c.RTarget)
		}
		for _, a := range as {
			check(a.Operand, a.RTarget)
		}
	}
	count(job.Constraints, job.Affinities)
	for _, g := range job.TaskGroups {
		count(g.Constraints, g.Affinities)
		for _, t := range g.Tasks {
			count(t.Constraints, t.Affinities)
			if t.Resources != nil {
				for _, d := range t.Resources.Devices {
					count(d.Constraints, d.Affinities)
				}
			}
		}
	}
	return err
}

// tooLarge is why a condition cannot be checked: a regular expression is too large.
// Others that are none [badCondition] refuses.
func tooLarge(operand, text string) error {
	if operand != api.ConstraintRegex {
		return nil
	}
	if _, err := compiled(text); errors.Is(err, errPattern) {
		return fmt.Errorf("a constraint with %.40q: %w", text, err)
	}
	return nil
}
