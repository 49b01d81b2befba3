#!/usr/bin/env bash
# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0
#
# hardware-nomad.sh tries nomad-device-pal, Nomad and nomad-pal together on this machine's GPUs, as
# `make hardware-nomad` does. Arguments go to the test, such as -test.run TestHardware/measured.
# It needs the NVIDIA driver and nvidia-smi. Parts that need root, PyTorch or MPS are skipped if it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/e2e"
export E2E_GPUS=real E2E_BIN=$PWD/../bin NOMAD_BIN=$PWD/../bin/nomad
exec ./e2e.test -test.run TestHardware -test.v -test.count 1 -test.timeout 20m "$@"
