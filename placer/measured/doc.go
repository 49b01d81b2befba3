// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package measured reads and writes files of measured times, made by
// `nomad-device-pal measure` or by anything else that can write a table:
//
//	gpu,app,time,model,key
//	GPU-5f3a…,resnet50,12.81,NVIDIA H200,bs256
//
// A table needs the columns gpu, app and time. The columns model, key, noise and rate may be missing. A JSON file is an array of
// objects with these names, a report of the device plugin, or a profile. Errors name the file, and
// the line or element in the file.
//
// [ReadCSV] must read unchanged what [WriteCSV] writes, because measurements are stored in this
// form in Nomad's variables. A new column must be optional, because stored tables do not have the
// column.
package measured
