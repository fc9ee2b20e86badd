// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scorecard holds the operator's own scorecard tests. Every bundle has further,
// stock ones.
//
// A test reads the bundle and uses a cluster in which the operator runs. "operator-sdk
// scorecard" runs each test in a pod (main), and "make scorecard" runs them as Go tests
// (cluster_test.go). A test changes only objects that it has created, and deletes them.
package scorecard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Setting is the environment of a test.
type Setting struct {
	// Bundle is the folder with manifests/ and metadata/.
	Bundle string
	// Connect makes a client for the cluster. Tests of the bundle alone do not call it.
	Connect func() (client.Client, error)
	// Namespace is where a test creates its objects. The operator must watch it.
	Namespace string
	// Image is that of the pods that a test creates. They need not run.
	Image string
	// Wait is how long the operator may take to react to each change.
	Wait time.Duration
}

// Test checks one claim. It returns the problems that it found, or an error if it could
// not check the claim.
type Test func(ctx context.Context, s Setting, log *Log) (problems []string, err error)

// tests are all tests, by the name that main is given.
var tests = map[string]Test{
	"examples-reconcile": examplesReconcile,
}

// Names lists the tests.
func Names() (names []string) {
	for name := range tests {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Run runs a test. A name that is not known is an error of the result.
func Run(ctx context.Context, name string, s Setting, now time.Time) v1alpha3.TestStatus {
	result := v1alpha3.TestResult{Name: name, State: v1alpha3.PassState, CreationTimestamp: metav1.NewTime(now)}
	test := tests[name]
	if test == nil {
		result.State = v1alpha3.ErrorState
		result.Errors = []string{fmt.Sprintf("there is no test %q, only %s", name, strings.Join(Names(), ", "))}
		return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{result}}
	}
	var log Log
	problems, err := test(ctx, s, &log)
	if len(problems) > 0 {
		result.State, result.Errors = v1alpha3.FailState, problems
	}
	if err != nil {
		result.State, result.Errors = v1alpha3.ErrorState, append(result.Errors, err.Error())
	}
	result.Log = log.String()
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{result}}
}

// Log is the output of a test.
type Log struct{ strings.Builder }

func (l *Log) say(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }
