// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package population draws clusters of GPUs whose speeds vary as those of real clusters do: for the
// demo, tests, the simulator and replay, on machines without a GPU.
//
// A [Table] holds the quantiles of one application's times over the GPUs of one cluster. They are
// computed from the measurements that the PAL artifact publishes (hal-uw/blox-pal, tag
// artifact-v1.4). [Tables] are the ones that come with the product. [Draw] makes a cluster from
// them and a seed:
//
//	gpus, err := population.Draw(population.Spec{Cluster: "longhorn", Nodes: 16,
//		GPUsPerNode: 4, Outliers: population.Exactly(1)}, rng)
//
// What a table says is the spread of GPUs, each GPU being the median of its runs. Runs that took
// 1.5 times the median GPU or more are kept apart, as the outlier tail. On Longhorn these are 20 of
// 1404 ResNet-50 runs, on 12 GPUs whose other runs were normal. On Lonestar6, with one run a GPU,
// they are 6 of 219 GPUs, 3 of which share a node. PAL's simulator draws runs and lets each be a
// GPU for good; [AsMeasured] does the same.
package population
