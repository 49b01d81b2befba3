// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// gzipped compresses the answers to callers who accept this. A stream is compressed up to each
// flush.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		defer z.close()
		next.ServeHTTP(z, r)
	})
}

// compressors are unused compressors, because each takes hundreds of kilobytes. The fastest level
// takes a tenth of the time of the default for nearly the same size of our answers.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // this level is valid
	return z
}}

// gzipWriter compresses the body of one answer. It embeds the writer to be one.
type gzipWriter struct {
	http.ResponseWriter
	zip     *gzip.Writer // nil if the body is not compressed
	started bool         // the header is sent
}

// WriteHeader implements [http.ResponseWriter].
func (w *gzipWriter) WriteHeader(status int) {
	h := w.Header()
	bodyless := status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified
	if !w.started && !bodyless && h.Get("Content-Encoding") == "" && h.Get("Content-Range") == "" {
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		w.zip = compressors.Get().(*gzip.Writer)
		w.zip.Reset(w.ResponseWriter)
	}
	h.Add("Vary", "Accept-Encoding")
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *gzipWriter) Write(text []byte) (int, error) {
	h := w.Header()
	if !w.started && h.Get("Content-Type") == "" {
		h.Set("Content-Type", http.DetectContentType(text))
	}
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	if w.zip == nil {
		return w.ResponseWriter.Write(text)
	}
	return w.zip.Write(text)
}

// FlushError sends what was written so far, for [http.ResponseController].
func (w *gzipWriter) FlushError() error {
	if !w.started {
		w.WriteHeader(http.StatusOK)
	}
	if w.zip != nil {
		if err := w.zip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap returns the writer below, for [http.ResponseController].
func (w *gzipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// close writes the end of the body.
func (w *gzipWriter) close() {
	if w.zip == nil {
		return
	}
	_ = w.zip.Close() // the caller may be gone
	compressors.Put(w.zip)
}
