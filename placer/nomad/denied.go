// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"
	"net/http"
)

// Right is what an ACL policy must grant for a request, as the policy has it.
type Right string

// The rights that the placer and its commands need.
const (
	ReadNodes       Right = `node { policy = "read" }`
	ListJobs        Right = `the capability "list-jobs" of the job's namespace`
	ReadJob         Right = `the capability "read-job" of the job's namespace`
	SubmitJob       Right = `the capability "submit-job" of the job's namespace`
	ReadFS          Right = `the capability "read-fs" of the job's namespace`
	ReadLogs        Right = `the capability "read-logs" of the job's namespace`
	ExecAlloc       Right = `the capability "alloc-exec" of the job's namespace; for tasks of raw_exec "alloc-node-exec", too`
	AllocLifecycle  Right = `the capability "alloc-lifecycle" of the job's namespace`
	Events          Right = `the capability "read-job" of namespace "*" and node { policy = "read" }`
	ListVariables   Right = `the capability "list" of the variables "nomad-pal/*"`
	ReadVariables   Right = `the capability "read" of the variables "nomad-pal/*"`
	WriteVariables  Right = `the capability "write" of the variables "nomad-pal/*"`
	DeleteVariables Right = `the capability "destroy" of the variables "nomad-pal/*"`
)

// deniedError is a refusal of Nomad's that says what the token lacks.
type deniedError struct {
	cause error
	right Right
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%v\nThe token lacks %s, or has expired or been deleted. placer/deploy/acl has policies that suffice.", e.cause, e.right)
}

func (e *deniedError) Unwrap() error { return e.cause }

// Denied adds to Nomad's "Permission denied" which right is missing. Other
// errors, and those that say so already, are returned as they are.
func Denied(err error, right Right) error {
	var said *deniedError
	if !Refused(err) || errors.As(err, &said) {
		return err
	}
	return &deniedError{err, right}
}

// Refused reports whether Nomad did not do it for lack of a right.
func Refused(err error) bool {
	code := StatusOf(err)
	return code == http.StatusForbidden || code == http.StatusUnauthorized
}
