// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package version

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Only a clean checkout of a tag has the tag as its version. Later commits sort above it and below
// the next release.
func TestVersionOfCheckout(t *testing.T) {
	c := checkout{t, t.TempDir()}
	c.copy("release/version.sh", "internal/version/version.go")
	c.want("2.0.0-dev") // outside a git repository

	c.git("init", "-q")
	c.commit()
	c.want(`2.0.0-dev.1+COMMIT`)
	c.git("tag", "v2.0.0-rc.1")
	c.want("2.0.0-rc.1")
	c.commit()
	c.want(`2.0.0-dev.1+COMMIT`)
	c.git("tag", "v2.0.0")
	c.want("2.0.0")
	c.write("LICENSE", "changed")
	c.git("add", "LICENSE")
	c.want(`2.0.1-dev.0+COMMIT.dirty`)
	c.commit()
	c.commit()
	c.want(`2.0.1-dev.2+COMMIT`)
	c.write("internal/version/version.go", "var Number = \"2.1.0-dev\"\n")
	c.git("add", ".")
	c.commit()
	c.want(`2.1.0-dev.3+COMMIT`)
}

// In a linked worktree, the version contains the commit, too, although Go records none there.
func TestCommitOfWorktree(t *testing.T) {
	c := checkout{t, filepath.Join(t.TempDir(), "main")}
	c.copy("Makefile", "release/version.sh", "internal/version/version.go")
	if got := c.run("release/version.sh", "commit"); got != "" {
		t.Errorf("commit %q without git", got)
	}
	c.git("init", "-q")
	c.git("add", ".")
	c.commit()
	c.git("worktree", "add", "-q", "../linked")
	c.dir = filepath.Join(filepath.Dir(c.dir), "linked")
	c.commit()
	want := c.run("git", "rev-parse", "--short=12", "HEAD")
	for _, want := range []string{want, want + "+dirty"} {
		if got := c.run("release/version.sh", "commit"); got != want {
			t.Errorf("commit %q, want %q", got, want)
		}
		if make := c.run("make", "-n", "build"); !strings.Contains(make, ".commit="+want+"'") {
			t.Errorf("make build does not name commit %q:\n%s", want, make)
		}
		c.write("internal/version/version.go", "changed")
	}
}

// The changelog's unreleased section is that of the version under development.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	next := strings.TrimSuffix(Number, "-dev")
	if unreleased := "## " + next + " (Unreleased)"; first != unreleased && !regexp.MustCompile(`^## \d+\.\d+\.\d+ \(20\d\d-\d\d-\d\d\)$`).MatchString(first) {
		t.Errorf("CHANGELOG.md begins with %q, want %q or a release with its date", first, unreleased)
	}
}

type checkout struct {
	t   *testing.T
	dir string
}

func (c checkout) copy(names ...string) {
	c.t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			c.t.Fatal(err)
		}
		c.write(name, string(text))
	}
}

func (c checkout) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

func (c checkout) commit() { c.git("commit", "-q", "--allow-empty", "-m", "x") }

func (c checkout) git(args ...string) {
	c.t.Helper()
	c.run("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"}, args...)...)
}

func (c checkout) run(name string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	// Ignore the user's git configuration, and repositories in parent folders.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(c.dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c checkout) want(version string) {
	c.t.Helper()
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(version), "COMMIT", "[0-9a-f]{12}") + "$"
	if got := c.run("release/version.sh"); !regexp.MustCompile(pattern).MatchString(got) {
		c.t.Errorf("version %s, want %s", got, version)
	}
}
