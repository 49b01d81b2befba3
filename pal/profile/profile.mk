# Copyright (c) The nomad-pal Authors
# SPDX-License-Identifier: MPL-2.0

# Calibration: figures from the measurements in PAL_DATA.

.PHONY: calibration-figures population-tables
calibration-figures: ## class stability, bins and drift detection on the measurements in PAL_DATA
	@test -n "$(PAL_DATA)" || { echo "set PAL_DATA to the directory with the PAL artifact's measurements"; exit 1; }
	PAL_DATA="$(PAL_DATA)" go run ./bench/calibration

population-tables: ## print the tables of pal/population, computed from PAL_DATA
	@test -n "$(PAL_DATA)" || { echo "set PAL_DATA to the directory with the PAL artifact's measurements"; exit 1; }
	PAL_DATA="$(PAL_DATA)" go run ./sim/paldata/quantiles
