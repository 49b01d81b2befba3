// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measured reads and writes files of measured times, made by
// `nomad-device-pal measure` or by anything else that can write a table:
//
//	gpu,app,time,model,key
//	GPU-5f3a…,resnet50,12.81,NVIDIA H200,bs256
//
// A table needs the columns gpu, app and time; model, key, noise and rate may be
// missing. JSON is an array of objects with these names, or a report of the
// device plugin. Errors name file and line.
package measured
