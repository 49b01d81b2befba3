// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"encoding/json"
	"fmt"
)

// Environment variables by which a task requests a measurement of its GPUs. The command nomad-pal
// measure sets these variables.
const (
	// EnvReservation holds a secret ticket, by which the device plugin identifies the task's
	// reservation.
	EnvReservation = "NOMAD_PAL_RESERVATION"
	// EnvMeasure, with any value, asks the device plugin for one measurement of the GPUs that the
	// task has reserved. The task itself must not use these GPUs.
	EnvMeasure = "NOMAD_PAL_MEASURE"
)

// Measuring (string) is the state of the device plugin's measurements of each GPU; see
// [FormatAccounts]. A plugin that measures nothing, for example with emulated GPUs, does not
// publish this attribute.
const Measuring = "unique.measuring"

// Account is the state of the measurements of one GPU.
type Account struct {
	// Last is when the last uninterrupted session started, in RFC 3339; "" if there was none.
	Last string `json:"last,omitempty"`
	// Problem is why the last session gave no result; "" if it gave a result.
	Problem string `json:"problem,omitempty"`
	// Provisional is set if not all GPUs of the node were measured together. Such a GPU was cooler
	// during its measurement than in a job that uses the whole node.
	Provisional bool `json:"provisional,omitempty"`
	// Uncapped is set if nothing limited the clocks in class A, so the GPU did not reach its power
	// limit. If Uncapped is set, the time of class A says little about jobs that reach the limit.
	Uncapped bool `json:"uncapped,omitempty"`
	// Unable is why the device plugin never measures the GPU; "" if the plugin measures this GPU.
	Unable string `json:"unable,omitempty"`
	// Waits is why the GPU is not measured although a measurement is due; "" otherwise.
	Waits string `json:"waits,omitempty"`
}

// FormatAccounts writes the accounts as a JSON object, keyed by GPU id.
func FormatAccounts(of map[string]Account) string {
	if len(of) == 0 {
		return ""
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings and booleans only
	}
	return string(text)
}

// ParseAccounts reads what [FormatAccounts] wrote.
func ParseAccounts(text string) (map[string]Account, error) {
	if text == "" {
		return nil, nil
	}
	var of map[string]Account
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return nil, fmt.Errorf("reading the state of measurements: %w", err)
	}
	return of, nil
}
