// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import "github.com/nomad-pal/nomad-pal/pal"

// Model is a training model of the Sia traces, with its seconds per iteration and application
// class (PAL artifact, workload.py:427-452).
type Model struct {
	Name      string
	IterTimeS float64
	Class     pal.AppClass
}

// SiaModels returns the models of the Sia traces.
func SiaModels() []Model {
	return []Model{
		{"resnet50", 0.17540429367763434, pal.ClassA},
		{"BERT", 0.179, pal.ClassB},
		{"GPT2", 3.5714, pal.ClassB},
		{"DCGAN", 0.0469266931, pal.ClassB},
		{"vgg19", 0.300610341, pal.ClassC},
		{"PointNet", 0.28125, pal.ClassD},
	}
}
