// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// largestAnnotation is how many bytes the annotations of an object may have
// together. "kubectl apply" without --server-side keeps the whole object in one.
const largestAnnotation = 256 << 10

// TestEveryObjectFitsIntoAnAnnotation leaves half of the room to later versions.
func TestEveryObjectFitsIntoAnAnnotation(t *testing.T) {
	stream, err := os.Open(filepath.Join(testkit.Root(), "dist", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close() //nolint:errcheck // it was only read
	decoder := yaml.NewYAMLOrJSONDecoder(stream, 4096)
	count := 0
	for ; ; count++ {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) > largestAnnotation/2 {
			t.Errorf("%v %v takes %d bytes, more than half of %d", object["kind"], object["metadata"], len(encoded), largestAnnotation)
		}
	}
	if count < 10 {
		t.Errorf("dist/install.yaml holds only %d objects", count)
	}
}

// TestInstallUseUninstall follows the README from a cluster that has never seen the
// operator to one that has forgotten it.
func TestInstallUseUninstall(t *testing.T) {
	bare(t)
	install := commandsOf(t, "## Install")
	must(t, install[0])
	running(t)
	before := versions(t)
	must(t, install[0])
	if after := versions(t); after != before {
		t.Errorf("installing again has changed something:\n%s\nbefore:\n%s", after, before)
	}

	namespace := env.Namespace(t)
	operator(t)
	inPlace, rollout := scaled(t, namespace, v1beta1.UpdateModeInPlace), scaled(t, namespace, v1beta1.UpdateModeRollout)
	pods := names(t, inPlace)
	if got := rollout.templateCPU(t); got < 300 {
		t.Fatalf("the template of the Deployment in Rollout asks for %dm: there is nothing to give back", got)
	}

	for _, command := range commandsOf(t, "## Uninstall") {
		must(t, command)
	}
	forgotten(t)
	if now := names(t, inPlace); !slices.Equal(now, pods) {
		t.Errorf("pods of the Deployment in InPlace are %v, not %v", now, pods)
	}
	for _, pod := range inPlace.pods(t) {
		if got := cpuInForce(pod); got < 300 {
			t.Errorf("pod %s has only %dm of CPU left", pod.Name, got)
		}
	}
	if got := rollout.templateCPU(t); got != 100 {
		t.Errorf("the template of the Deployment in Rollout asks for %dm, not for its own 100m", got)
	}
}

// TestUninstallInTheWrongOrder takes the operator away while a scaler holds
// something, and then tries both ways out that the README names.
func TestUninstallInTheWrongOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		way func(t *testing.T, w workload)
		cpu int64 // what the template asks for in the end: at least this
	}{
		"install it again": {way: installAgain, cpu: 100},
		"let it go":        {way: letGo, cpu: 300},
	} {
		t.Run(name, func(t *testing.T) {
			bare(t)
			must(t, commandsOf(t, "## Install")[0])
			running(t)
			o := operator(t)
			w := scaled(t, env.Namespace(t), v1beta1.UpdateModeRollout)
			pods := names(t, w)
			o.Stop(t)
			must(t, "kubectl delete --wait=false -f dist/install.yaml")
			testkit.Eventually(t, soon, func() string {
				if s := w.scaler(t); s.DeletionTimestamp == nil || len(s.Finalizers) == 0 {
					return fmt.Sprintf("the scaler is not stuck: deleted at %v, finalizers %v", s.DeletionTimestamp, s.Finalizers)
				}
				return ""
			})
			if now := names(t, w); !slices.Equal(now, pods) {
				t.Errorf("pods are %v, not %v", now, pods)
			}
			tc.way(t, w)
			forgotten(t)
			if got := w.templateCPU(t); got < tc.cpu {
				t.Errorf("in the end the template asks for %dm", got)
			}
		})
	}
}

// installAgain has the operator finish what it has begun.
func installAgain(t *testing.T, w workload) {
	t.Helper()
	gone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	must(t, commandsOf(t, "## Install")[0])
	o := operator(t)
	gone(t, w.scaler(t))
	o.Stop(t)
	if got := w.templateCPU(t); got != 100 {
		t.Errorf("the template asks for %dm, not for its own 100m", got)
	}
	must(t, "kubectl delete --ignore-not-found -f dist/install.yaml")
}

// letGo takes the finalizer away by hand.
func letGo(t *testing.T, w workload) {
	t.Helper()
	must(t, strings.NewReplacer("NAMESPACE", w.namespace, "NAME", w.name).Replace(lastResort(t)))
	if got := w.templateCPU(t); got < 300 {
		t.Errorf("the template asks for %dm: it should have been left as it was", got)
	}
}

// lastResort is the command in the README for a scaler that nobody can finish.
func lastResort(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(testkit.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(readme) {
		if command := string(bytes.TrimSpace(line)); strings.HasPrefix(command, "kubectl patch verticalscaler") {
			return command
		}
	}
	t.Fatal("the README does not say how to let a scaler go")
	return ""
}

// TestClientSideApply installs with the apply that many pipelines still use.
func TestClientSideApply(t *testing.T) {
	bare(t)
	must(t, "kubectl apply -f dist/install.yaml")
	running(t)
	if out := must(t, "kubectl apply -f dist/install.yaml"); strings.Contains(out, "configured") {
		t.Errorf("applying again has changed something:\n%s", out)
	}
}

// TestComponents has the API server check each choice that config/default offers in
// its comments, alone and together with the others.
func TestComponents(t *testing.T) {
	bare(t)
	must(t, "kubectl apply --server-side -k config/crd && kubectl create namespace "+system)
	file := filepath.Join("default", "kustomization.yaml")
	original, err := os.ReadFile(filepath.Join(testkit.Root(), "config", file))
	if err != nil {
		t.Fatal(err)
	}
	offered := regexp.MustCompile(`(?m)^# (- \.\./\S+)$`).FindAllStringSubmatch(string(original), -1)
	if len(offered) < 2 {
		t.Fatalf("config/default offers only %v", offered)
	}
	choices := map[string]string{
		"as it is":        string(original),
		"without Rollout": strings.Replace(string(original), "\n- ../components/rollout\n", "\n", 1),
	}
	for _, match := range offered {
		choices["with "+match[1]] = strings.Replace(string(original), match[0], match[1], 1)
	}
	for name, text := range choices {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "config")
			if err := os.CopyFS(config, os.DirFS(filepath.Join(testkit.Root(), "config"))); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(config, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out := must(t, "kubectl apply --server-side --dry-run=server -k "+filepath.Join(config, "default"))
			if !strings.Contains(out, "deployment.apps/verticalscaler-operator serverside-applied") {
				t.Errorf("there is no operator in it:\n%s", out)
			}
			if got := strings.Contains(out, "-manager-rollout serverside-applied"); got != (name != "without Rollout") {
				t.Errorf("the right to patch Deployments is in it: %t\n%s", got, out)
			}
		})
	}
}

// running waits until the API is served and the operator's pod is there. kwok plays
// it: the operator that works is a process of the test.
func running(t *testing.T) {
	t.Helper()
	must(t, "kubectl wait --for=condition=Established --timeout=2m crd -l app.kubernetes.io/name=verticalscaler-operator")
	must(t, "kubectl wait --for=condition=Available --timeout=2m -n "+system+" deployment/verticalscaler-operator")
}

// versions are the resource versions of all that is installed, but for the
// Deployment's, whose status changes.
func versions(t *testing.T) string {
	t.Helper()
	return must(t, `kubectl get crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,services,configmaps -n `+system+
		` -l app.kubernetes.io/name=verticalscaler-operator -o jsonpath='{range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}'`)
}

// forgotten waits until nothing of the operator is left.
func forgotten(t *testing.T) {
	t.Helper()
	for _, name := range []string{"verticalscalers", "verticalscalercheckpoints"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = name + "." + v1beta1.GroupVersion.Group
		if err := apiextensionsv1.AddToScheme(env.Client.Scheme()); err != nil {
			t.Fatal(err)
		}
		gone(t, crd)
	}
	testkit.Eventually(t, soon, func() string {
		return must(t, "kubectl get ns,clusterroles,clusterrolebindings -l app.kubernetes.io/name=verticalscaler-operator -o name")
	})
}

func names(t *testing.T, w workload) (names []string) {
	t.Helper()
	for _, pod := range w.pods(t) {
		names = append(names, string(pod.UID))
	}
	slices.Sort(names)
	return names
}
