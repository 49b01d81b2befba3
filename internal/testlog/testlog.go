// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package testlog provides a log buffer that goroutines write to while a test reads it.
package testlog

import (
	"bytes"
	"sync"
)

// Buffer is a log that several goroutines write and read. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
