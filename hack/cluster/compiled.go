// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !fetched

package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func init() {
	components["etcd"] = component{"the cluster's database", func() int {
		etcdmain.Main(os.Args)
		return 0
	}}
	components["kube-apiserver"] = component{"the API", func() int { return cli.Run(apiserver.NewAPIServerCommand()) }}
	components["kube-controller-manager"] = component{"the built-in controllers", func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }}
	components["kube-scheduler"] = component{"finds nodes for pods", func() int { return cli.Run(scheduler.NewSchedulerCommand()) }}
	components["kubectl"] = component{"the command line client", func() int { return runQuietly(kubectl.NewDefaultKubectlCommand()) }}
}
