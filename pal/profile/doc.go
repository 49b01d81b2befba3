// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package profile turns measured times into a calibrated profile. The profile says how fast every
// GPU is for every application class, relative to the median GPU of its model. The profile also
// contains the variability class (bin) of every GPU.
//
// A [Sample] is one measured time. [Build] normalizes samples per (comparability key, model,
// application class) to the median GPU: 1.0 is the median, and larger is slower. Then Build bins
// the scores by fixed edges with hysteresis. Fixed edges keep GPUs from changing class often. On real
// data, PAL's k-means cannot do this, because many numbers of clusters have nearly the same
// silhouette. The
// result, a [Profile], is a value with a byte-stable JSON form ([Profile.Encode], [Parse]).
// [Profile.Lookup] returns the entry of a GPU in the profile; [Profile.Score] computes entries of
// GPUs measured after it was built. [Diff] lists the changes between two profiles.
//
//	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
//	e, ok := p.Lookup("GPU-…", pal.ClassA) // e.Score, e.Class, e.Value
//
// Bins have two uses. Class, from 1 to [MaxClass], is the number that the device plugin publishes,
// and that jobs can use in constraints. Value is the bin's PM score in PAL's L×V matrix. It is the
// median of the bin's members. Predictions use the raw score instead.
//
// Changes of this package must preserve these properties. Times are compared only within one group
// of key, model and application. The order of samples does not matter. The same samples give the
// same bytes, and Build makes a new version only if something changed. A profile that Build made
// can be stored and parsed, whatever nodes publish. Parse accepts unknown fields, so that an older
// reader accepts a later profile.
package profile
