// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The names in docs/olm.md.
const (
	v1Namespace   = "verticalscaler-system"
	installerName = "system:serviceaccount:" + v1Namespace + ":verticalscaler-installer"
)

// TestVersion1 installs, upgrades and removes what OLM v1 makes of the bundle, for the ClusterExtension of docs/olm.md, with no more
// rights than dist/olm-v1.yaml grants. test/libraries/olmv1 has OLM v1's check of the CRDs.
func TestVersion1(t *testing.T) {
	i := &installation{namespace: v1Namespace, bundle: released(t), began: env.Mark()}
	second := i.bundle.next(t)
	i.run(t, applies+"olm-v1.yaml")
	t.Cleanup(func() { i.remove(t) })
	asInstaller(t, "apply", olmv1(t, "render", i.bundle), "--server-side")
	first := i.leads(t)

	const at = "olm-v1"
	namespaced(t, at, nil)
	deploy(t, at, "web", 2)
	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	sized(t, at, "web", "300m")

	before, workload := space(t, at).Scaler("web"), fingerprint(t, at)
	kubectl(t, "apply", olmv1(t, "rights", second), "--server-side")
	objects := olmv1(t, "render", second)
	asInstaller(t, "apply", objects, "--server-side")
	i.bundle = second
	eventually(t, func() string {
		if now := node.operator(i.namespace); now == nil || now == first {
			return "the new operator does not run alone"
		}
		return ""
	})
	i.leads(t)
	hasField(t)
	i.run(t, "kubectl delete clusterrole,clusterrolebinding,role,rolebinding verticalscaler-installer.v0.1.0 -n verticalscaler-system",
		"v0.1.0", "v"+released(t).version)
	eventually(t, func() string { return i.hasLookedAt(t, at, "web") })
	isKept(t, before)
	assert.Equal(t, "workloads after the upgrade", workload, fingerprint(t, at))
	i.isAllowed(t)

	listed(t.Context(), t)
	allowDeletion(t.Context(), t)
	asInstaller(t, "delete", objects, "--wait=false")
	for _, o := range decoded(t, objects) {
		eventually(t, func() string {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy()); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%s %s is still there: %v", o.GetKind(), o.GetName(), err)
			}
			return ""
		})
	}
	assert.Equal(t, "workloads after the removal", workload, fingerprint(t, at))
	i.run(t, "kubectl delete --ignore-not-found -f "+downloads+"olm-v1.yaml")
}

// olmv1 runs the program of hack/tools/olm for the ClusterExtension of docs/olm.md, in the version of the bundle.
func olmv1(t *testing.T, command string, b bundle) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), paths[v1Variable], command, "-bundle", b.dir, "-extension", filepath.Join(root(), "docs", "olm.md")).Output()
	if err != nil {
		t.Fatalf("olmv1 %s: %v\n%s", command, err, stderr(err))
	}
	return string(out)
}

// asInstaller runs kubectl with the rights of the service account with which OLM v1 up to 1.10 installs. Kinds come first.
func asInstaller(t *testing.T, command, objects string, args ...string) {
	t.Helper()
	args = append(args, "--as="+installerName, "--as-group=system:serviceaccounts", "--as-group=system:authenticated")
	kinds, others := "", ""
	for _, o := range decoded(t, objects) {
		text, err := yaml.Marshal(o.Object)
		must.Succeed(t, err)
		if o.GetKind() == "CustomResourceDefinition" {
			kinds += "---\n" + string(text)
		} else {
			others += "---\n" + string(text)
		}
	}
	kubectl(t, command, kinds, args...)
	kubectl(t, command, others, args...)
}

func kubectl(t *testing.T, command, objects string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), env.Kubectl(), append([]string{"--kubeconfig", env.Kubeconfig(), command, "-f", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(objects)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", command, err, out)
	}
}

func decoded(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := testkit.Decoded([]byte(text))
	must.Succeed(t, err)
	return objects
}
