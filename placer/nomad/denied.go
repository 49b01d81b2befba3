// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Right is a permission that a request needs. The value is the name of the permission in ACL
// policies.
type Right string

// These are the rights that the placer and its commands need.
const (
	ReadNodes       Right = `node { policy = "read" }`
	ListJobs        Right = `the capability "list-jobs" of the job's namespace`
	ReadJob         Right = `the capability "read-job" of the job's namespace`
	SubmitJob       Right = `the capability "submit-job" of the job's namespace`
	ExecAlloc       Right = `the capability "alloc-exec" of the job's namespace, and for raw_exec tasks also "alloc-node-exec"`
	AllocLifecycle  Right = `the capability "alloc-lifecycle" of the job's namespace`
	Events          Right = `the capability "read-job" of namespace "*" and node { policy = "read" }`
	ListVariables   Right = `the capability "list" of the variables "nomad-pal/*"`
	ReadVariables   Right = `the capability "read" of the variables "nomad-pal/*"`
	WriteVariables  Right = `the capability "write" of the variables "nomad-pal/*"`
	DeleteVariables Right = `the capability "destroy" of the variables "nomad-pal/*"`
)

// deniedError is the error of a request that Nomad refused. The error names the missing permission.
type deniedError struct {
	cause error
	right Right
}

func (e *deniedError) Error() string {
	except := ""
	if e.right == ExecAlloc {
		except = ", except for raw_exec tasks"
	}
	return fmt.Sprintf("%v\nThe token lacks %s, or has expired or been deleted. placer/deploy/acl has policies that suffice%s.", e.cause, e.right, except)
}

func (e *deniedError) Unwrap() error { return e.cause }

// Denied adds the name of the missing permission to Nomad's error "Permission denied". Denied
// leaves all other errors unchanged, and errors that already name the permission.
func Denied(err error, right Right) error {
	var said *deniedError
	if !Refused(err) || errors.As(err, &said) {
		return err
	}
	return &deniedError{err, right}
}

// Refused reports whether Nomad refused a request because the token lacked a permission. If a Nomad
// client refuses to return logs or files, the status is 500 (seen on 1.11.3). If a Nomad client
// refuses a session in a task, there is no status, only the text "Permission denied".
func Refused(err error) bool {
	switch StatusOf(err) {
	case 0:
		return err != nil && err.Error() == "Permission denied"
	case http.StatusForbidden, http.StatusUnauthorized:
		return true
	case http.StatusInternalServerError:
		return strings.Contains(err.Error(), "Permission denied")
	}
	return false
}

// Invalid reports whether Nomad refuses the job because the jobspec is invalid. Invalid also
// returns the reason. If the jobspec is invalid, Nomad answers with status 500 and a list of
// errors.
func Invalid(err error) (why string, ok bool) {
	unexpected, ok := errors.AsType[api.UnexpectedResponseError](err)
	if !ok || unexpected.StatusCode() != http.StatusInternalServerError {
		return "", false
	}
	_, why, ok = strings.Cut(strings.Replace(unexpected.Body(), " errors occurred:\n", " error occurred:\n", 1), " error occurred:\n")
	lines := strings.FieldsFunc(why, func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t *")
	}
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return s == "" }), "; "), ok
}
