// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/config"
)

// The operator's service account, as config/default makes it.
const (
	systemNamespace = "verticalscaler-system"
	serviceAccount  = "verticalscaler-operator"
)

//go:embed operator.yaml
var operatorConfig []byte

// findRoot finds the repository that the demo is run in.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module github.com/verticalscaler/verticalscaler-operator\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no operator to build here: run the demo inside its repository")
		}
	}
}

func operatorBinary(root string) string {
	return filepath.Join(root, "bin", "demo", "verticalscaler-operator")
}

// buildOperator begins to build the operator, which takes minutes without Go's
// build cache, and seconds with it.
func buildOperator(root, dir string) (*process, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", operatorBinary(root), ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return start("go build", filepath.Join(dir, "build.log"), cmd)
}

// startOperator runs the operator with the rights of its service account.
func startOperator(ctx context.Context, root, dir string, admin *rest.Config, c client.Client) (*process, error) {
	token, err := tokenFor(ctx, c)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigFor(admin, token), kubeconfig); err != nil {
		return nil, fmt.Errorf("writing the operator's kubeconfig: %w", err)
	}
	configuration := filepath.Join(dir, "operator.yaml")
	if err := os.WriteFile(configuration, operatorConfig, 0o600); err != nil {
		return nil, fmt.Errorf("writing the operator's configuration: %w", err)
	}
	cmd := exec.Command(operatorBinary(root), "-config="+configuration, "-zap-encoder=console", "-zap-log-level=debug")
	cmd.Env = append(withoutCluster(os.Environ()), "KUBECONFIG="+kubeconfig)
	return start("the operator", filepath.Join(dir, "operator.log"), cmd)
}

// withoutCluster drops what would point the operator at another cluster, or at a
// part of ours.
func withoutCluster(environ []string) (env []string) {
	for _, variable := range environ {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "KUBECONFIG", "WATCH_NAMESPACE", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
			"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy":
		default:
			env = append(env, variable)
		}
	}
	return env
}

// tokenFor asks for a token like the one that a pod of the operator would get. It
// lasts longer than anybody looks around.
func tokenFor(ctx context.Context, c client.Client) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: serviceAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", systemNamespace, serviceAccount, err)
	}
	return request.Status.Token, nil
}

func kubeconfigFor(admin *rest.Config, token string) clientcmdapi.Config {
	const name = "demo"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return *out
}

// sayCompression tells how the demo's time differs from the usual. It is computed,
// so that it stays true.
func sayCompression(usual, here config.Operator) []string {
	u, h := usual.Recommendation, here.Recommendation
	return []string{
		fmt.Sprintf("A day of remembering is %s here: CPU usage counts half after %s instead of %s, a peak of",
			dayHere, h.CPUHalfLife.Duration, days(u.CPUHalfLife)),
		fmt.Sprintf("memory for %s instead of %s. Not to scale: the memory after an OOM kill fades by half in",
			h.MemoryWindow.Duration, days(u.MemoryWindow)),
		fmt.Sprintf("%s instead of %s, the first recommendation needs %s of usage instead of %s,",
			h.OOMHalfLife.Duration, days(u.OOMHalfLife), h.MinEvidence.Duration, u.MinEvidence.Duration),
		fmt.Sprintf("usage is read every %s (metrics-server: %s) instead of %s, decisions pause %s instead of 5m0s.",
			here.Collection.Interval.Duration, metricResolution, usual.Collection.Interval.Duration, cooldown),
	}
}

func days(d metav1.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d.Duration == day:
		return "a day"
	case d.Duration > 0 && d.Duration%day == 0:
		return fmt.Sprintf("%d days", d.Duration/day)
	}
	return d.Duration.String()
}
