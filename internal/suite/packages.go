// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// pkg is go list's description of a package.
type pkg struct {
	ImportPath, Dir                              string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
	Deps                                         []string
	// ForTest is the package whose test binary this package belongs to.
	ForTest string
}

// packages prints the packages whose tests belong to a part: "race" or "norace".
func packages(to io.Writer, part string, patterns []string) (int, error) {
	if part != "race" && part != "norace" {
		return 2, fmt.Errorf("unknown kind of packages %q: want race or norace", part)
	}
	all, sampling, err := list(patterns)
	if err != nil {
		return 1, err
	}
	for _, p := range all {
		shares, err := p.sharesMemory()
		if err != nil {
			return 1, err
		}
		if runsIn(part, shares, sampling[p.ImportPath]) {
			fmt.Fprintln(to, p.ImportPath)
		}
	}
	return 0, nil
}

// runsIn reports whether a part runs a package's tests. The race detector makes tests about five
// times slower, and is useful only if goroutines share memory. Packages that run only a sample of
// their cases under the detector run all cases without the detector.
func runsIn(part string, sharesMemory, samples bool) bool {
	if part == "race" {
		return sharesMemory
	}
	return !sharesMemory || samples
}

// list returns the packages with tests. sampling marks packages whose tests use internal/race.
func list(patterns []string) (all []pkg, sampling map[string]bool, err error) {
	out, err := exec.Command("go", append([]string{"list", "-test", "-json=ImportPath,Dir,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Deps,ForTest"}, patterns...)...).Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			err = fmt.Errorf("%w\n%s", err, ended.Stderr)
		}
		return nil, nil, fmt.Errorf("listing packages: %w", err)
	}
	sampling = map[string]bool{}
	for lines := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := lines.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, sampling, nil
		case err != nil:
			return nil, nil, fmt.Errorf("listing packages: %w", err)
		}
		name, isTest := strings.CutSuffix(p.ImportPath, ".test")
		switch {
		case isTest:
			sampling[name] = slices.ContainsFunc(p.Deps, func(d string) bool { return strings.HasSuffix(d, "/internal/race") })
		case p.ForTest == "" && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0:
			all = append(all, p)
		}
	}
}

// sharesMemory reports whether goroutines possibly share memory in a package or its tests: the code
// starts goroutines, or uses packages that are made for goroutines.
func (p pkg) sharesMemory() (bool, error) {
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		if startsGoroutines(file) {
			return true, nil
		}
	}
	return false, nil
}

// forGoroutines are packages that start goroutines, or that help goroutines to share memory.
var forGoroutines = []string{"sync", "sync/atomic", "testing/synctest", "net/http/httptest", "golang.org/x/sync/errgroup"}

// startsGoroutines reports whether code has a go statement or a channel, or imports one of
// forGoroutines. Tests that only call t.Parallel do not count.
func startsGoroutines(file *ast.File) bool {
	for _, i := range file.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && slices.Contains(forGoroutines, path) {
			return true
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.ChanType:
			found = true
		}
		return !found
	})
	return found
}
