// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "fmt"

// AppClass is an application class: how sensitive a job is to the differences between GPUs of one
// model. A is the most sensitive (PAL §3.1). The device plugin measures one kernel for each of the
// four default classes. GPUs have variability classes instead; package profile computes them.
type AppClass string

// The application classes.
const (
	ClassA AppClass = "A" // compute-bound (ResNet-50, SGEMM)
	ClassB AppClass = "B" // mixed (BERT, GPT-2, DCGAN)
	ClassC AppClass = "C" // memory-bandwidth-bound (VGG19)
	ClassD AppClass = "D" // irregular memory access (PageRank, PointNet)
)

// AppClasses returns the application classes, most sensitive first.
func AppClasses() []AppClass { return []AppClass{ClassA, ClassB, ClassC, ClassD} }

// NumClasses is the number of application classes.
const NumClasses = 4

// Index returns the position of the class in [AppClasses], -1 if it is unknown.
func (c AppClass) Index() int {
	for i, k := range [NumClasses]AppClass{ClassA, ClassB, ClassC, ClassD} {
		if c == k {
			return i
		}
	}
	return -1
}

// ParseAppClass reads a class name in upper or lower case.
func ParseAppClass(s string) (AppClass, error) {
	if len(s) == 1 {
		c := AppClass(rune(s[0] &^ 0x20))
		if c.Index() >= 0 {
			return c, nil
		}
	}
	return "", fmt.Errorf("application class %q is unknown; it must be one of A, B, C, D", s)
}

// PMScore is how long a fixed piece of work of one application class takes on one GPU, relative to
// the median GPU of the same model. 1.0 is the median, and a larger score is slower. 0 means that
// the GPU was not measured.
type PMScore float64
