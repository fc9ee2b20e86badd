// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The program of docs/go-client.md applies a scaler and prints what the operator says. Once more, it changes nothing. It owns only
// what it sets, so what a user sets beside it stays, and a user who wants another value of its own field is told about it.
func TestAProgramAppliesAScaler(t *testing.T) {
	namespace := env.Namespace(t)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	program := filepath.Join(t.TempDir(), "create-scaler")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	build.Dir = filepath.Join(testkit.Root(), "examples", "create-scaler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(env.Config), kubeconfig); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: namespace, Name: "web"}
	create(t, testkit.Deployment(namespace, "web"))

	said := execute(t, program, kubeconfig, key)
	for _, want := range []string{"Ready=True RecommendOnly: ", "TargetFound=True DeploymentFound: ", "Stalled=False "} {
		if !strings.Contains(said, want) {
			t.Errorf("the program does not print %q:\n%s", want, said)
		}
	}

	var first, again v1beta1.VerticalScaler
	read(t, key, &first)
	want := `{"f:spec":{"f:deploymentName":{},"f:updatePolicy":{"f:updateMode":{}}}}`
	if diff := cmp.Diff(want, appliedBy(&first, "create-scaler")); diff != "" {
		t.Errorf("the fields that the program owns (-want +got):\n%s", diff)
	}
	again = first
	again.Spec.UpdatePolicy.TolerancePercent = new(int32(20))
	if err := env.Client.Update(t.Context(), &again, client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
	execute(t, program, kubeconfig, key)
	read(t, key, &first)
	if first.Generation != again.Generation || *first.Spec.UpdatePolicy.TolerancePercent != 20 {
		t.Errorf("the program has changed the scaler: %+v", first.Spec)
	}

	first.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
	if err := env.Client.Update(t.Context(), &first, client.FieldOwner("user")); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, program, kubeconfig, key).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !strings.Contains(string(out), `conflict with "user"`) {
		t.Errorf("want a conflict, got %v:\n%s", err, out)
	}
}

func execute(t *testing.T, program, kubeconfig string, key client.ObjectKey) string {
	t.Helper()
	out, err := command(t, program, kubeconfig, key).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func command(t *testing.T, program, kubeconfig string, key client.ObjectKey) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, key.Namespace, key.Name)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	return cmd
}

func read(t *testing.T, key client.ObjectKey, scaler *v1beta1.VerticalScaler) {
	t.Helper()
	if err := env.Client.Get(t.Context(), key, scaler); err != nil {
		t.Fatal(err)
	}
}

// appliedBy are the fields that a manager has applied.
func appliedBy(object client.Object, manager string) string {
	fields := object.GetManagedFields()
	i := slices.IndexFunc(fields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply
	})
	if i < 0 {
		return ""
	}
	return string(fields[i].FieldsV1.GetRawBytes())
}

func kubeconfigOf(c *rest.Config) clientcmdapi.Config {
	out := clientcmdapi.NewConfig()
	out.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	out.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}
	out.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	out.CurrentContext = "test"
	return *out
}
