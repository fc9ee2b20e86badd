// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/app"
)

// metricResolution is how often metrics-server looks; more often it refuses to.
const metricResolution = 10 * time.Second

// cluster is a cluster of our own, in a folder.
type cluster struct {
	binary string
	dir    string
	*process
}

// startCluster starts a cluster, which takes a while: see await.
func startCluster(binary, dir string) (*cluster, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cluster's folder: %w", err)
	}
	p, err := start("the cluster", filepath.Join(dir, "up.log"), exec.Command(binary, "up",
		"-dir="+dir, "-kwok-nodes=2", "-metrics-server", "-metric-resolution="+metricResolution.String(),
		"-audit", "-parent-pid="+strconv.Itoa(os.Getpid())))
	if err != nil {
		return nil, err
	}
	return &cluster{binary: binary, dir: dir, process: p}, nil
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }
func (c *cluster) audit() string      { return filepath.Join(c.dir, "audit.log") }

// await returns once the cluster is up.
func (c *cluster) await(ctx context.Context) error {
	pid := strconv.Itoa(c.cmd.Process.Pid)
	for {
		// An earlier cluster may have left its file in the folder; ours has our child's id.
		if ready, err := os.ReadFile(filepath.Join(c.dir, "ready")); err == nil && strings.TrimSpace(string(ready)) == pid {
			return nil
		}
		select {
		case <-c.ended:
			return c.failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// admin is how the administrator reaches the cluster.
func (c *cluster) admin() (*rest.Config, client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = -1, -1 // nobody else is to be spared
	config.UserAgent = "verticalscaler-demo"
	admin, err := client.New(config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	return config, admin, nil
}

// kustomize renders a folder of the repository.
func (c *cluster) kustomize(ctx context.Context, folder string) ([]byte, error) {
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
