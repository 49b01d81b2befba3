// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package population

// Tables returns the product's tables: Longhorn (Tesla V100), Frontera (Quadro RTX 5000) and
// Lonestar6 (A100). TestShippedTables in sim/paldata computes the tables from the measurements in
// hal-uw/blox-pal, tag artifact-v1.4.
func Tables() []Table {
	return []Table{
		{
			Cluster: "longhorn", App: "resnet50", GPUs: 336, Runs: 1404, MedianTime: 117.81, Noise: 0.02644,
			Quantiles:    []float64{0.9449, 0.963, 0.968, 0.9704, 0.9754, 0.9792, 0.9821, 0.9876, 0.9938, 1, 1.0047, 1.0117, 1.019, 1.0261, 1.0313, 1.0604, 1.0878, 1.1103, 1.1205},
			OutlierShare: 0.0142, OutlierQuantiles: []float64{1.71, 2.4, 2.64, 2.7, 2.79, 2.86, 3.56},
		},
		{
			Cluster: "longhorn", App: "bert", GPUs: 136, Runs: 1096, MedianTime: 242.9, Noise: 0.01386,
			Quantiles: []float64{0.9858, 0.9864, 0.9883, 0.9927, 0.9936, 0.995, 0.9956, 0.9976, 0.9991, 1, 1.001, 1.0028, 1.0049, 1.0056, 1.0069, 1.0104, 1.0244, 1.036, 1.0391},
		},
		{
			Cluster: "longhorn", App: "pagerank", GPUs: 172, Runs: 880, MedianTime: 66046, Noise: 0.0005,
			Quantiles: []float64{0.9707, 0.9708, 0.9709, 0.9713, 0.9716, 0.9735, 0.9994, 0.9996, 0.9998, 1, 1.0003, 1.0006, 1.0011, 1.0014, 1.0017, 1.0021, 1.0024, 1.003, 1.0036},
		},
		{
			Cluster: "frontera", App: "resnet50", GPUs: 296, Runs: 1480, MedianTime: 0.13555, Noise: 0.00646,
			Quantiles: []float64{0.9844, 0.9864, 0.9888, 0.9905, 0.9929, 0.9942, 0.9953, 0.9967, 0.9984, 1, 1.0011, 1.0028, 1.0054, 1.008, 1.0196, 1.0619, 1.1192, 1.1293, 1.1449},
		},
		{
			Cluster: "frontera", App: "bert", GPUs: 276, Runs: 1656, MedianTime: 0.17867, Noise: 0.00148,
			Quantiles: []float64{0.9912, 0.9918, 0.9925, 0.9936, 0.9955, 0.9964, 0.9969, 0.9979, 0.999, 1, 1.001, 1.0023, 1.0035, 1.004, 1.0046, 1.0062, 1.0544, 1.0583, 1.0602},
		},
		{
			Cluster: "frontera", App: "pagerank", GPUs: 248, Runs: 1240, MedianTime: 2.587e+09, Noise: 0.0002,
			Quantiles: []float64{0.9988, 0.9992, 0.9993, 0.9994, 0.9995, 0.9996, 0.9996, 0.9998, 0.9999, 1, 1.0001, 1.0003, 1.0004, 1.0005, 1.0005, 1.0006, 1.0006, 1.0007, 1.0009},
		},
		{
			Cluster: "lonestar6", App: "resnet50", GPUs: 219, Runs: 219, MedianTime: 0.02528, Noise: 0,
			Quantiles:    []float64{0.949, 0.9585, 0.9652, 0.9707, 0.9771, 0.9812, 0.9845, 0.99, 0.9944, 0.9993, 1.0046, 1.0097, 1.0174, 1.0223, 1.0291, 1.0375, 1.0444, 1.0547, 1.0915},
			OutlierShare: 0.0274, OutlierQuantiles: []float64{2.14, 2.16, 2.16, 2.17, 2.17, 2.2},
		},
	}
}
