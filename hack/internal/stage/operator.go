// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// The operator's namespace and service account, as config/default and the bundle
// have them.
const (
	SystemNamespace = "verticalscaler-system"
	ServiceAccount  = "verticalscaler-operator"
)

// Root finds the repository that the program is run in.
func Root() (string, error) {
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
			return "", errors.New("there is no operator to build here: run this inside its repository")
		}
	}
}

// Build begins to build a package of the repository into a file, which takes minutes
// without Go's build cache, and seconds with it.
func Build(root, pkg, binary, log string) (*process.Process, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return process.Start("go build "+pkg, log, cmd)
}

// Operator says how to run the operator.
type Operator struct {
	// Binary is the operator, and Dir a folder for its log and configuration.
	Binary, Dir string
	// Configuration is its configuration file.
	Configuration []byte
	// Env holds further variables of its environment.
	Env []string
}

// Start runs the operator with the rights of its service account. Admin is how the
// administrator reaches the cluster.
func (o Operator) Start(ctx context.Context, config *rest.Config, admin client.Client) (*process.Process, error) {
	token, err := Token(ctx, admin, SystemNamespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(o.Dir, "operator.kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigFor(config, token), kubeconfig); err != nil {
		return nil, fmt.Errorf("writing the operator's kubeconfig: %w", err)
	}
	configuration := filepath.Join(o.Dir, "operator.yaml")
	if err := os.WriteFile(configuration, o.Configuration, 0o600); err != nil {
		return nil, fmt.Errorf("writing the operator's configuration: %w", err)
	}
	cmd := exec.Command(o.Binary, "-config="+configuration, "-zap-encoder=console", "-zap-log-level=debug")
	cmd.Env = append(append(withoutCluster(os.Environ()), "KUBECONFIG="+kubeconfig), o.Env...)
	return process.Start("the operator", filepath.Join(o.Dir, "operator.log"), cmd)
}

// withoutCluster drops what would point the operator at another cluster, at a part of
// ours, or at an installation of itself.
func withoutCluster(environ []string) (env []string) {
	for _, variable := range environ {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
			"WATCH_NAMESPACE", "POD_NAMESPACE", "OPERATOR_DEPLOYMENT", "OPERATOR_CONDITION_NAME",
			"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy":
		default:
			env = append(env, variable)
		}
	}
	return env
}

// Token asks for a token like the one that a pod of the service account would get. It
// lasts longer than anybody looks around.
func Token(ctx context.Context, admin client.Client, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return request.Status.Token, nil
}

func kubeconfigFor(admin *rest.Config, token string) clientcmdapi.Config {
	const name = "stage"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthority: admin.CAFile, CertificateAuthorityData: admin.CAData}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	return *out
}
