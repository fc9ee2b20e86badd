// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scorecard-tests is the operator's own scorecard test. Every bundle has further, stock ones.
//
// "operator-sdk scorecard" runs it in a pod, in a cluster with the operator, and takes the pod's log for the TestStatus. So nothing
// else is printed, and the program exits with 0 even if the test fails.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testName is the only argument in config/scorecard/config.yaml.
const testName = "examples-reconcile"

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	result := status(run(ctx))
	cancel()
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(result); err != nil {
		fmt.Fprintf(os.Stderr, "scorecard-tests: printing the status: %v\n", err)
		os.Exit(1)
	}
}

// run tests with the bundle and the namespace that "operator-sdk scorecard" gives to its pods.
func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding a cluster: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	return tester{c, os.Getenv("SCORECARD_NAMESPACE"), 30 * time.Second}.examplesReconcile(ctx, "/bundle")
}

// status is the result. It passes without an error.
func status(err error) v1alpha3.TestStatus {
	result := v1alpha3.TestResult{Name: testName, State: v1alpha3.PassState, CreationTimestamp: metav1.Now()}
	if err != nil {
		result.State, result.Errors = v1alpha3.FailState, strings.Split(err.Error(), "\n")
	}
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{result}}
}
