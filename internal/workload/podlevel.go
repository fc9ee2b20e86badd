// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

// ContainersSum is the sum of what the pod's containers declare, which the API server compares with
// pod-level requests.
func (p Pod) ContainersSum() Resources {
	f := p.Footprint()
	f.PodLevel = Resources{}
	return f.Sum()
}
