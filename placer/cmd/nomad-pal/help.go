// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/cli"

	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// help returns a function for a command's help: usage, description and options, in lines of at most
// 80 columns.
func help(usage, text string, options ...string) func() string {
	return func() string {
		return reflow(strings.TrimSpace("Usage: nomad-pal " + usage + "\n\n" + strings.TrimSpace(text) + "\n" + strings.Join(options, "")))
	}
}

// examples formats pairs of a task and the command for this task.
func examples(pairs ...string) string {
	var b strings.Builder
	b.WriteString("\nExamples:\n")
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "\n  %s\n\n      $ %s\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// optionColumn is the column where the description of an option starts.
const optionColumn = 27

// reflow wraps paragraphs and descriptions of options at 80 columns. Other indented lines stay as
// they are.
func reflow(text string) string {
	var out []string
	block := "" // the paragraph or option that is being read
	isOption := func(text string) bool { return strings.HasPrefix(text, "  -") }
	flush := func() {
		switch {
		case isOption(block):
			out = append(out, optionLines(block)...)
		case block != "":
			out = append(out, wrapped(block, columns)...)
		}
		block = ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case isOption(block) && strings.HasPrefix(line, strings.Repeat(" ", 20)):
			if !strings.Contains(block[2:], "  ") { // the description starts in this line
				block += " "
			}
			block += " " + strings.TrimSpace(line)
		case line == "" || strings.HasPrefix(line, " ") && !isOption(line):
			flush()
			out = append(out, line)
		case block == "" || isOption(line) || isOption(block):
			flush()
			block = line
		default:
			block += " " + line
		}
	}
	flush()
	return strings.Join(out, "\n")
}

func optionLines(option string) []string {
	flag, does, _ := strings.Cut(strings.TrimPrefix(option, "  "), "  ")
	lines := []string{}
	head := "  " + flag
	for _, l := range wrapped(strings.TrimSpace(does), columns-optionColumn) {
		if len(head) >= optionColumn {
			lines, head = append(lines, head), ""
		}
		lines = append(lines, strings.TrimRight(head+strings.Repeat(" ", optionColumn-len(head))+l, " "))
		head = ""
	}
	return lines
}

// ofNomad maps words that people type as commands to Nomad's own commands.
var ofNomad = map[string]string{
	"stop": "nomad job stop", "start": "nomad job start", "scale": "nomad job scale", "restart": "nomad job restart", "revert": "nomad job revert",
	"dispatch": "nomad job dispatch", "inspect": "nomad job inspect", "exec": "nomad alloc exec", "logs": "nomad alloc logs -f -job", "log": "nomad alloc logs -f -job", "drain": "nomad node drain",
	"job": "nomad job", "alloc": "nomad alloc", "node": "nomad node", "deployment": "nomad deployment", "eval": "nomad eval",
}

// ofSlurm maps commands of Slurm and of other tools to commands of nomad-pal.
var ofSlurm = map[string]string{
	"sbatch": "run", "submit": "run", "srun": "shell", "salloc": "shell", "scancel": "cancel", "kill": "cancel", "delete": "cancel",
	"sinfo": "gpus", "nodes": "gpus", "sstat": "gpus", "nvidia-smi": "gpus", "top": "gpus", "watch": "gpus", "squeue": "queue", "sprio": "queue", "sacct": "history", "sreport": "history", "usage": "history",
	"sshare": "status", "list": "status", "ls": "status", "jobs": "status", "ps": "status", "sacctmgr": "status", "scontrol": "explain", "show": "explain", "describe": "explain", "sdiag": "doctor", "failures": "events",
}

// unknownCommand returns an error text for an unknown command; "" if the command exists. If there
// is a similar command, the text suggests it.
func unknownCommand(args []string, commands map[string]cli.CommandFactory) string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return ""
	}
	name := args[0]
	if name == "profile" && len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		name += " " + args[1]
	}
	if commands[name] != nil {
		return ""
	}
	said := fmt.Sprintf("nomad-pal has no command %q", name)
	if ofNomad[name] != "" {
		return said + "; use Nomad's own command: " + ofNomad[name] + "."
	}
	near := cmp.Or(ofSlurm[name], nearest.Name(name, slices.Sorted(maps.Keys(commands))))
	if near != "" {
		return said + fmt.Sprintf(": did you mean %q? See nomad-pal -help.", near)
	}
	return said + "; see nomad-pal -help."
}

// unreached suggests what to try after an error. If the job does not exist, the user can list the
// jobs. If Nomad refused a request without a token, the user can set a token. If no Nomad answers
// at the address, or if TLS fails, the user can correct the address or the TLS options. For other
// errors, unreached returns "".
func unreached(b *base, err error) string {
	if errors.Is(err, nomad.ErrNoJob) {
		return "nomad-pal status lists the jobs with GPUs. -namespace=<name> selects another namespace."
	}
	if nomad.Refused(err) && b.config().SecretID == "" {
		return "No token was given: set NOMAD_TOKEN, or -token."
	}
	if nomad.StatusOf(err) == http.StatusNotFound && strings.Contains(err.Error(), "404 page not found") {
		return fmt.Sprintf("%s answers, but is not Nomad's HTTP API. NOMAD_ADDR (or -address) must be Nomad's address.", b.config().Address)
	}
	remedy := remedyTLS(err)
	if remedy != "" {
		return fmt.Sprintf("%s is the address of Nomad (NOMAD_ADDR or -address): %s.", b.config().Address, remedy)
	}
	var transport *url.Error
	var dial *net.OpError
	if !errors.As(err, &transport) || !errors.As(err, &dial) && !errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return fmt.Sprintf("No answer at %s. Is that Nomad's address (NOMAD_ADDR, or -address), and does Nomad run there?", b.config().Address)
}

// remedyTLS returns what to change if err means that command and server disagree about TLS; "" for
// other errors.
func remedyTLS(err error) string {
	op, _ := errors.AsType[*net.OpError](err)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	text := err.Error()
	switch {
	case invalid.Cert != nil && invalid.Reason == x509.Expired:
		return "renew its certificate, and make the server load the new one; or, if the certificate is still valid, correct this machine's clock"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "give the CA of its certificate (NOMAD_CACERT)"
	case errors.As(err, new(x509.HostnameError)):
		return "use a name in the address for which the certificate is valid"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "write http:// in the address, because the server does not use TLS"
	case strings.Contains(text, "Client sent an HTTP request to an HTTPS server"):
		return "write https:// in the address, because the server uses TLS"
	case op != nil && op.Op == "remote error":
		return "use a certificate that the server accepts (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY)"
	}
	return ""
}
