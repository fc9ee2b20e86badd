// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && kubelet

package main

import (
	"context"

	"k8s.io/component-base/cli"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Only hack/node runs a kubelet, and only on Linux: elsewhere it would compile to something that manages nothing.
func init() {
	components["kubelet"] = component{"runs a node's pods; needs root and a container runtime", func() int {
		return cli.Run(kubelet.NewKubeletCommand(context.Background()))
	}}
}
