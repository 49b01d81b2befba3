// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// streams are a command's input and outputs.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// terminal reports whether the output is a terminal.
	terminal bool
}

// base holds what all commands share: the general options, and the options for output.
type base struct {
	command string // the command's name
	ctx     context.Context
	io      streams

	connect                        api.Config // only what options set
	namespace, storage, palAddress string
	json                           bool
	// tokenPlain reports whether the token may be sent to the agent unencrypted.
	tokenPlain bool
	// verbose reports whether to print the evidence of an explanation.
	verbose bool
	// jobspec is the file that the command explains, or "" if it explains a job in Nomad.
	jobspec    string
	flagsGiven map[string]bool
}

const generalOptions = `
General Options:

  -address=<addr>          The address of the Nomad server, NOMAD_ADDR or http://127.0.0.1:4646 by default.
  -region=<region>         The region to forward to, NOMAD_REGION by default.
  -namespace=<namespace>   The namespace of jobs, NOMAD_NAMESPACE or "default" by default.
  -token=<token>           The ACL token, NOMAD_TOKEN by default.
  -pal-namespace=<ns>      The namespace of nomad-pal's variables, "default" by default.
  -pal-address=<addr>      The HTTP API of the agent, NOMAD_PAL_ADDR by default; without
                           both, the address that the agent publishes in Nomad.

Nomad's other environment variables apply as to nomad's own commands: NOMAD_CACERT, NOMAD_CAPATH,
NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY, NOMAD_TLS_SERVER_NAME, NOMAD_SKIP_VERIFY and NOMAD_HTTP_AUTH.
NO_COLOR=1 switches colours off. Your token is sent to the agent only over loopback or HTTPS. The
certificate of an address that is published in Nomad must be signed by NOMAD_CACERT or NOMAD_CAPATH.
NOMAD_PAL_TOKEN_PLAIN=true allows any connection.
`

const outputOptions = `
Output Options:

  -json                    Print JSON, for jq. docs/reference/json.schema.json has the fields.
`

// flags returns a flag set with the general options and -json.
func (b *base) flags(name string) *flag.FlagSet {
	fs := b.flagsWithoutJSON(name)
	fs.BoolVar(&b.json, "json", false, "")
	return fs
}

// flagsWithoutJSON returns a flag set with the general options.
func (b *base) flagsWithoutJSON(name string) *flag.FlagSet {
	b.command = name
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for flagName, to := range map[string]*string{
		"address": &b.connect.Address, "region": &b.connect.Region, "namespace": &b.namespace, "token": &b.connect.SecretID,
		"pal-namespace": &b.storage,
	} {
		fs.StringVar(to, flagName, "", "")
	}
	b.namespace = usualNamespace()
	fs.StringVar(&b.palAddress, "pal-address", os.Getenv("NOMAD_PAL_ADDR"), "")
	plain, err := strconv.ParseBool(os.Getenv("NOMAD_PAL_TOKEN_PLAIN"))
	b.tokenPlain = err == nil && plain
	return fs
}

const (
	anyArgs  = -1
	anyWords = -2
)

// parse parses the arguments. If an argument is wrong, parse prints an error, and ok is false. want
// is the number of arguments apart from options, or anyArgs, or anyWords. With anyWords, arguments
// can also start with "-".
func (b *base) parse(fs *flag.FlagSet, args []string, want int) (rest []string, ok bool) {
	refuse := func(format string, args ...any) ([]string, bool) {
		b.fail(fmt.Errorf(format, args...))
		return nil, false
	}
	if err := fs.Parse(args); err != nil {
		return refuse("%w%s; see nomad-pal %s -help", err, nearest.Option(fs, err), fs.Name())
	}
	b.namespace = cmp.Or(b.namespace, usualNamespace())
	b.flagsGiven = map[string]bool{}
	fs.Visit(func(f *flag.Flag) { b.flagsGiven[f.Name] = true })
	ended := fs.NArg() < len(args) && args[len(args)-fs.NArg()-1] == "--" // all other arguments are names, even those with a dash
	i := slices.IndexFunc(fs.Args(), isOption)
	if i > 0 && want != anyWords && !ended {
		return refuse("options go before arguments: nomad-pal %s %s", fs.Name(), strings.Join(each(slices.Concat(args[:len(args)-fs.NArg()], fs.Args()[i:], fs.Args()[:i]), palapi.ShellQuoted), " "))
	}
	if want >= 0 && fs.NArg() != want {
		return refuse("nomad-pal %s takes %s, got %d; see -help", fs.Name(), counted(want, "argument"), fs.NArg())
	}
	return fs.Args(), true
}

// isOption reports whether an argument looks like an option. A negative number is no option.
func isOption(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9')
}

// given reports whether the command line contains the option.
func (b *base) given(name string) bool { return b.flagsGiven[name] }

// fail prints an error and returns the exit code for it. An interrupted command has only failed
// because the user ended it. If Nomad refused a request because it does not know the token, fail
// prints this reason. The text of err would wrongly name a missing capability.
func (b *base) fail(err error) int {
	if b.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		b.io.complain("Interrupted.")
		return exitInterrupted
	}
	if nomad.Refused(err) {
		unknown := b.tokenUnknown()
		if unknown != "" {
			err = errors.New(unknown)
		}
	}
	b.io.complain("Error: " + err.Error())
	if lacksAgent(err) {
		return exitNoPlacer
	}
	said := unreached(b, err)
	if said != "" {
		b.io.complain(said)
	}
	return 1
}

// complain prints to standard error, in lines that fit a terminal.
func (s streams) complain(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		for _, l := range wrapped(line, s.sentenceWidth()) {
			fmt.Fprintln(s.err, l)
		}
	}
}

// damaged prints a note for an error about damaged data in Nomad's variables, and returns nil,
// because such data counts as missing. damaged returns all other errors unchanged.
func (b *base) damaged(err error) error {
	if !store.Unreadable(err) {
		return err
	}
	b.io.complain("Note: " + oneLine(err.Error()) + ". This data is damaged, and counts as missing until an agent stores it again")
	return nil
}

// client connects to Nomad.
func (b *base) client() (*nomad.Client, error) {
	return nomad.NewClient(b.config(), b.storage, nomad.NamesRegions("from -region, NOMAD_REGION or the jobspec"))
}

// raw returns a writer for the output of tasks. Unlike all other writers, it escapes nothing.
func (s streams) raw() io.Writer { return unquoted(s.out) }

func unquoted(w io.Writer) io.Writer {
	if q, ok := w.(*quoting); ok {
		return q.w
	}
	return w
}

// usualNamespace returns the namespace of a command without -namespace.
func usualNamespace() string { return cmp.Or(api.DefaultConfig().Namespace, api.DefaultNamespace) }

// config returns how to connect to Nomad. Options take precedence over Nomad's environment
// variables.
func (b *base) config() *api.Config {
	b.connect.TLSConfig = &api.TLSConfig{}
	return nomad.Config(b.connect)
}

// show prints v as JSON with -json; otherwise show calls print. show returns the exit code.
func (b *base) show(v any, print func()) int {
	if b.json {
		return b.printJSON(v)
	}
	print()
	return 0
}

func (b *base) printJSON(v any) int {
	whole := reflect.New(reflect.TypeOf(v)).Elem()
	whole.Set(reflect.ValueOf(v))
	filled(whole)
	enc := json.NewEncoder(b.io.out)
	enc.SetIndent("", "    ")
	if err := enc.Encode(whole.Interface()); err != nil {
		return b.fail(err)
	}
	return 0
}

// filled replaces nil slices and maps in v with empty ones, so that the JSON has no null in place
// of a list. Fields that the JSON omits stay nil.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		filled(v.Elem())
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			filled(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeMap(v.Type()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.IsZero() || !strings.Contains(v.Type().Field(i).Tag.Get("json"), ",omit") {
				filled(f)
			}
		}
	}
}

// printf prints a message. printf escapes line ends in arguments that are strings, because other
// people may have written these strings.
func (s streams) printf(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = quoted(text, "")
		}
	}
	fmt.Fprintf(s.out, format, args...)
}

// printEach prints one line per thing: the text in done, and then the thing. If there are no
// things, printEach prints the text in none, if it is not empty.
func (s streams) printEach(things []string, done, none string) {
	if len(things) == 0 && none != "" {
		s.printf("%s\n", none)
	}
	for _, t := range things {
		s.printf("%s %s\n", done, t)
	}
}

// readFile reads a file, or standard input if path is "-".
func (s streams) readFile(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(s.in)
	}
	return os.ReadFile(path)
}
