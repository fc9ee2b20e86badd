// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stage sets up what a program needs that shows or tests the operator on one
// machine: a cluster of its own, and the operator as a process with the rights of its
// service account and no others.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// MetricResolution is how often metrics-server looks; more often it refuses to.
const MetricResolution = 10 * time.Second

// Cluster is a cluster of our own, in a folder.
type Cluster struct {
	*process.Process
	binary string
	dir    string
}

// StartCluster starts a cluster with two fake nodes, metrics-server and an audit log,
// which takes a while: see Await. clusterDir is the folder that hack/cluster/build.sh
// prints; what the cluster writes is in dir.
func StartCluster(clusterDir, dir string) (*Cluster, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cluster's folder: %w", err)
	}
	binary := Binary(clusterDir)
	p, err := process.Start("the cluster", filepath.Join(dir, "up.log"), exec.Command(binary, "up",
		"-dir="+dir, "-kwok-nodes=2", "-metrics-server", "-metric-resolution="+MetricResolution.String(),
		"-audit", "-parent-pid="+strconv.Itoa(os.Getpid())))
	if err != nil {
		return nil, err
	}
	return &Cluster{Process: p, binary: binary, dir: dir}, nil
}

// Binary is the program of the cluster in the folder that hack/cluster/build.sh
// prints.
func Binary(clusterDir string) string { return filepath.Join(clusterDir, "localcluster") }

// Kubeconfig is the administrator's.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// Audit is the log of every request.
func (c *Cluster) Audit() string { return filepath.Join(c.dir, "audit.log") }

// Await returns once the cluster is up.
func (c *Cluster) Await(ctx context.Context) error {
	pid := strconv.Itoa(c.PID())
	for {
		// An earlier cluster may have left its file in the folder; ours has our child's id.
		if ready, err := os.ReadFile(filepath.Join(c.dir, "ready")); err == nil && strings.TrimSpace(string(ready)) == pid {
			return nil
		}
		select {
		case <-c.Ended:
			return c.Failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Admin is how the administrator reaches the cluster, under the name of a user agent.
func (c *Cluster) Admin(userAgent string) (*rest.Config, client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // nobody else is to be spared
	config.UserAgent = userAgent
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	return config, admin, nil
}

// Kustomize renders a folder of the repository.
func (c *Cluster) Kustomize(ctx context.Context, folder string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.binary, "kubectl", "kustomize", folder)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("rendering %s: %w", folder, err)
	}
	return out, nil
}

// Clear removes what is of no use once the cluster has ended, and leaves the logs.
func (c *Cluster) Clear() {
	for _, name := range []string{"etcd", "pki", "home"} {
		_ = os.RemoveAll(filepath.Join(c.dir, name)) // a temporary folder may as well stay
	}
}
