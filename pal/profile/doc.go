// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package profile turns measured times into a calibrated profile: how fast every GPU is for every
// application class, relative to the median GPU of its kind, and which variability class (bin) that
// makes.
//
// A [Sample] is one measured time. [Build] normalises samples per (comparability key, model,
// application class) to the median GPU: 1.0 is the median, and larger is slower. Then it bins the
// scores by fixed edges with hysteresis, or by PAL's k-means with outlier bins ([KMeans]). Fixed
// edges are the default: silhouettes are flat on real data, and GPUs must not flip classes. The
// result, a [Profile], is a value with a byte-stable JSON form ([Profile.Encode], [Parse]).
// [Profile.Lookup] answers for GPUs that it holds, [Profile.Score] for GPUs measured after it was
// built. [Diff] lists what changed since the last one.
//
//	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
//	e, ok := p.Lookup("GPU-…", pal.ClassA) // e.Score, e.Class, e.Value
//
// The bins serve two readers. Class, 1 to [MaxClass], is what the device plugin publishes and
// jobspecs constrain on. Value is the PM score that stands for the bin in PAL's L×V matrix: the
// median of its members, or for k-means the centroid over the median centroid, as PAL computes it.
// Predictions use neither, but the raw score.
package profile
