# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

# The placer with the fault points that the end-to-end tests kill it at.
.PHONY: fault-points
fault-points:
	@mkdir -p $(BIN)
	go build -tags faultpoints -o $(BIN)/nomad-pal-fault ./placer/cmd/nomad-pal

e2e: fault-points
