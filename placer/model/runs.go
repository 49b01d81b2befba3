// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package model
