// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// rootsFolder holds the root directories of the tests, and their output.
const rootsFolder = "tests"

// tokenFolder is where a pod finds the token of its service account.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

type hostAndCA = *rest.Config

func accessTo(admin hostAndCA, token, namespace string) (*access, error) {
	address, err := url.Parse(admin.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's address: %w", err)
	}
	ca := admin.CAData
	if len(ca) == 0 {
		if ca, err = os.ReadFile(admin.CAFile); err != nil {
			return nil, fmt.Errorf("reading the cluster's certificate: %w", err)
		}
	}
	return &access{host: address.Hostname(), port: address.Port(), token: []byte(token), ca: ca, namespace: namespace}, nil
}

// outcome is what came of a test.
type outcome struct {
	test   v1alpha3.TestConfiguration
	status v1alpha3.TestStatus
	took   time.Duration
}

// runStage runs the tests of a stage, at once or one after the other.
func (r *runner) runStage(ctx context.Context, tests v1alpha3.StageConfiguration) (outcomes []outcome, err error) {
	var running []*attempt
	for _, test := range tests.Tests {
		a, err := r.begin(test)
		if err != nil {
			return nil, err
		}
		defer a.process.Stop(0)
		if !tests.Parallel {
			a.await(ctx, r.wait)
		}
		running = append(running, a)
	}
	for _, a := range running {
		a.await(ctx, r.wait)
		outcomes = append(outcomes, outcome{test: a.test, status: a.status(), took: a.took})
	}
	return outcomes, ctx.Err()
}

// attempt is a test that runs.
type attempt struct {
	test    v1alpha3.TestConfiguration
	process *process.Process
	began   time.Time
	took    time.Duration
	late    bool
}

// begin starts a test in a root directory of its own.
func (r *runner) begin(test v1alpha3.TestConfiguration) (*attempt, error) {
	program, err := r.programs.programOf(test)
	if err != nil {
		return nil, err
	}
	name := strings.Join(test.Entrypoint[1:], "-")
	r.say("Running %s", name)
	root := filepath.Join(r.dir, rootsFolder, name)
	entrypoint := test.Entrypoint[0]
	if !filepath.IsAbs(entrypoint) {
		entrypoint = filepath.Join(pathInImage, entrypoint)
	}
	if err := r.makeRoot(root, program, entrypoint, needsCluster(test)); err != nil {
		return nil, fmt.Errorf("making the root directory of %s: %w", name, err)
	}
	cmd := &exec.Cmd{Path: entrypoint, Args: test.Entrypoint, Dir: "/", Env: []string{"PATH=" + pathInImage}}
	if r.access != nil {
		cmd.Env = append(cmd.Env, "SCORECARD_NAMESPACE="+r.access.namespace,
			"KUBERNETES_SERVICE_HOST="+r.access.host, "KUBERNETES_SERVICE_PORT="+r.access.port)
	}
	if cmd.SysProcAttr, err = inRoot(root); err != nil {
		return nil, err
	}
	p, err := process.Start("test "+name, root+".log", cmd)
	if err != nil {
		return nil, err
	}
	return &attempt{test: test, process: p, began: time.Now()}, nil
}

// makeRoot makes what a test has in its pod: its program, the bundle, a folder for
// temporary files and, where it talks to the cluster, its token.
func (r *runner) makeRoot(root, program, entrypoint string, withToken bool) error {
	at := filepath.Join(root, entrypoint)
	for _, dir := range []string{filepath.Dir(at), filepath.Join(root, "tmp"), filepath.Join(root, tokenFolder)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(at, content, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(root, "bundle"), os.DirFS(r.bundle)); err != nil {
		return err
	}
	if !withToken {
		return nil
	}
	// The folder above all roots is ours alone.
	for name, content := range map[string][]byte{"token": r.access.token, "ca.crt": r.access.ca, "namespace": []byte(r.access.namespace)} {
		if err := os.WriteFile(filepath.Join(root, tokenFolder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// await returns when the test has ended, or has had its time.
func (a *attempt) await(ctx context.Context, wait time.Duration) {
	if a.took > 0 {
		return
	}
	select {
	case <-a.process.Ended:
	case <-ctx.Done():
	case <-time.After(wait - time.Since(a.began)):
		a.late = true
	}
	a.process.Stop(0)
	a.took = time.Since(a.began)
}

// status reads what the test has printed. "operator-sdk scorecard" takes the whole log
// of the pod for it, and so do we.
func (a *attempt) status() v1alpha3.TestStatus {
	if a.late {
		return problem(a.test, fmt.Errorf("it took longer than %s:\n%s", a.took.Round(time.Second), a.process.Tail(20)))
	}
	output, err := os.ReadFile(a.process.Log)
	if err != nil {
		return problem(a.test, err)
	}
	return statusOf(a.test, output, a.process.Err())
}

// statusOf is the status that a test has printed; one with an error if there is none.
func statusOf(test v1alpha3.TestConfiguration, output []byte, ended error) (status v1alpha3.TestStatus) {
	if err := json.Unmarshal(output, &status); err != nil || ended != nil {
		return problem(test, fmt.Errorf("it has not printed a status (%w):\n%s", errors.Join(err, ended), output))
	}
	if len(status.Results) == 0 {
		return problem(test, errors.New("its status has no results"))
	}
	return status
}

func problem(test v1alpha3.TestConfiguration, err error) v1alpha3.TestStatus {
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{{
		Name: strings.Join(test.Entrypoint[1:], " "), State: v1alpha3.ErrorState, Errors: []string{err.Error()},
	}}}
}
