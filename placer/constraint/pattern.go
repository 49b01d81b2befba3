// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package constraint

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
)

// The placer checks a job against every node, and again when nodes change. These limits bound the
// time that the job of one author can cost. Without the limits, a job with a hundred groups and a
// long regular expression in each took 6 s on 200 nodes.
const (
	// maxGroups is the maximum number of task groups of a job. maxConditions is the maximum number
	// of constraints and affinities in a job, at all levels together.
	maxGroups     = 1000
	maxConditions = 1000
	// maxProgram is the maximum number of steps in the compiled program of a regular expression.
	// The programs of most patterns have tens of steps.
	maxProgram = 500
	// patternsKept is the maximum number of cached patterns. patternsKept is larger than the number
	// of conditions of one job.
	patternsKept = 2 * maxConditions
)

var errPattern = fmt.Errorf("the regular expression is too large: its program has more than %d steps", maxProgram)

// pattern is either a compiled regular expression or the error of an invalid one.
type pattern struct {
	*regexp.Regexp
	err error
}

// patterns is a cache. patterns maps the text of a regular expression to its compiled form. When
// the cache is full, it is emptied.
var patterns = struct {
	sync.Mutex
	known map[string]pattern
}{known: map[string]pattern{}}

// compiled returns the compiled regular expression. compiled compiles each expression once.
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

// size estimates the number of steps in the compiled program. size stops counting above maxProgram.
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

// Check returns an error if a job's constraints and affinities cost too much to evaluate, or if
// Nomad always refuses one of them.
func Check(job *api.Job) error {
	n := len(job.TaskGroups)
	if n > maxGroups {
		return fmt.Errorf("the job has %d task groups, but nomad-pal accepts at most %d", n, maxGroups)
	}
	cs, as := ofJob(job)
	if len(cs)+len(as) > maxConditions {
		return fmt.Errorf("the job has more constraints and affinities than the %d that nomad-pal accepts", maxConditions)
	}
	for _, c := range cs {
		if err := valid("constraint", Condition{c.LTarget, c.Operand, c.RTarget}); err != nil {
			return err
		}
	}
	for _, a := range as {
		if err := valid("affinity", Condition{a.LTarget, a.Operand, a.RTarget}); err != nil {
			return err
		}
	}
	return nil
}

// ofJob returns a job's constraints and affinities at all levels.
func ofJob(job *api.Job) (cs []*api.Constraint, as []*api.Affinity) {
	cs, as = append(cs, job.Constraints...), append(as, job.Affinities...)
	for _, g := range job.TaskGroups {
		cs, as = append(cs, g.Constraints...), append(as, g.Affinities...)
		for _, t := range g.Tasks {
			cs, as = append(cs, t.Constraints...), append(as, t.Affinities...)
			if t.Resources != nil {
				for _, d := range t.Resources.Devices {
					cs, as = append(cs, d.Constraints...), append(as, d.Affinities...)
				}
			}
		}
	}
	return cs, as
}

// operators are Nomad's operators.
var operators = []string{
	"", "=", "==", "is", "!=", "not", "<", "<=", ">", ">=", api.ConstraintVersion, api.ConstraintSemver, api.ConstraintRegex,
	api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny, api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet,
	api.ConstraintDistinctHosts, api.ConstraintDistinctProperty,
}

// valid returns an error for an operator, regular expression or version that Nomad refuses, and for
// a regular expression that is too large.
func valid(kind string, c Condition) error {
	if !slices.Contains(operators, c.Operator) {
		return fmt.Errorf("%s %s: Nomad has no operator %q%s", kind, c, c.Operator, nearest.Question(c.Operator, operators))
	}
	var err error
	switch c.Operator {
	case api.ConstraintRegex:
		_, err = compiled(c.Value)
	case api.ConstraintVersion:
		_, err = version.NewConstraint(c.Value)
	}
	if err != nil {
		return fmt.Errorf("%s %.80s: %w", kind, c, err)
	}
	return nil
}

// Condition is a constraint or affinity as an author writes it.
type Condition struct {
	Attribute string // left side, such as ${attr.kernel.name}
	Operator  string // such as regexp; "" means =
	Value     string // right side
}

// String returns the condition in the form that Nomad uses.
func (c Condition) String() string {
	return fmt.Sprintf("%q", strings.TrimSpace(strings.Join([]string{c.Attribute, cmp.Or(c.Operator, "="), c.Value}, " ")))
}
