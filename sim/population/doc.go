// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package population draws clusters of GPUs whose speeds vary as those of real clusters do: for the
// demo, tests, the simulator and replay, on machines without a GPU.
//
// A [Table] holds the quantiles of one application's times over the GPUs of one cluster. The
// quantiles are computed from the measurements that the PAL artifact publishes (hal-uw/blox-pal,
// tag artifact-v1.4). [Tables] returns the product's tables. [Draw] makes a cluster from tables and
// a seed:
//
//	gpus, err := population.Draw(population.Spec{Cluster: "longhorn", Nodes: 16,
//		GPUsPerNode: 4, Outliers: population.Exactly(1)}, rng)
//
// A table describes how GPUs differ; each GPU counts with the median of its runs. Runs that took at
// least 1.5 times as long as the median GPU are kept separately, as the outlier tail. On Longhorn,
// the tail has 20 of 1404 ResNet-50 runs, on 12 GPUs whose other runs were normal. On Lonestar6,
// with one run per GPU, the tail has 6 of 219 GPUs, of which 3 share a node. PAL's simulator draws
// single runs, and uses each run as a GPU whose speed never changes; [AsMeasured] does the same for
// outliers.
package population
