// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command create-scaler makes the operator recommend requests for a Deployment, and prints what the operator says about it.
//
//	go run . [-kubeconfig FILE] NAMESPACE DEPLOYMENT
//
// It is the example of docs/go-client.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	applyv1beta1 "github.com/verticalscaler/verticalscaler-operator/api/applyconfiguration/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

func main() {
	flag.Parse() // config has a flag of its own, -kubeconfig
	if err := run(os.Stdout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "create-scaler:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: create-scaler [-kubeconfig FILE] NAMESPACE DEPLOYMENT")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := connect()
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: args[0], Name: args[1]}
	if err := apply(ctx, c, key); err != nil {
		return err
	}
	scaler, err := observed(ctx, c, key)
	if err != nil {
		return err
	}
	for _, condition := range scaler.Status.Conditions {
		fmt.Fprintf(out, "%s=%s %s: %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	return nil
}

// connect returns a client that knows the kinds of VerticalScaler.
func connect() (client.Client, error) {
	cluster, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("adding the API to the scheme: %w", err)
	}
	return client.New(cluster, client.Options{Scheme: scheme})
}

// apply creates the scaler of a Deployment, or changes it to what is said here. It owns these fields and no others.
func apply(ctx context.Context, c client.Client, key client.ObjectKey) error {
	scaler := applyv1beta1.VerticalScaler(key.Name, key.Namespace).
		WithSpec(applyv1beta1.VerticalScalerSpec().
			WithDeploymentName(key.Name).
			WithUpdatePolicy(applyv1beta1.UpdatePolicy().WithUpdateMode(v1beta1.UpdateModeRecommend)))
	if err := c.Apply(ctx, scaler, client.FieldOwner("create-scaler")); err != nil {
		return fmt.Errorf("applying VerticalScaler %s: %w", key, err)
	}
	return nil
}

// observed waits until the operator has seen the scaler as it is now.
func observed(ctx context.Context, c client.Client, key client.ObjectKey) (*v1beta1.VerticalScaler, error) {
	scaler := &v1beta1.VerticalScaler{}
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, scaler)
		return scaler.Status.ObservedGeneration == scaler.Generation, err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the operator to observe VerticalScaler %s: %w", key, err)
	}
	return scaler, nil
}
