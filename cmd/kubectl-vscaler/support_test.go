// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// unpacked are the files of an archive.
func unpacked(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(archive)
	must.Succeed(t, err)
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Succeed(t, err)
		content, err := io.ReadAll(reader)
		must.Succeed(t, err)
		files[strings.TrimPrefix(header.Name, "vscaler-support/")] = string(content)
	}
}

// supported adds what only a bundle reads, with secrets in many places.
func (s *apiServer) supported() {
	vpas(s)
	event := func(kind, name, message string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Message: message}
	}
	operator := newPod(kube.DefaultOperatorNamespace, "operator-0", "operator", "1", "1", "")
	operator.Labels = map[string]string{"app.kubernetes.io/name": "verticalscaler-operator", "app.kubernetes.io/component": "manager"}
	operator.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "canary"}}
	s.put(event("VerticalScaler", "web", "Decided by 10.0.0.1"), event("Pod", "a", "probe failed: canary"), event("Pod", "other", "canary"),
		&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limits", Labels: map[string]string{"a": "canary"}}}, operator)
	s.answers["/api/v1/namespaces/"+kube.DefaultOperatorNamespace+"/pods/operator-0/log"] = func(r *http.Request) any {
		return "dial tcp 10.0.0.1:443; of " + r.URL.Query().Get("tailLines") + " lines"
	}
	for _, object := range s.objects {
		if pod, ok := object.(*corev1.Pod); ok && pod.Namespace == "shop" {
			pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "canary"}
			pod.Spec.NodeName, pod.Status.PodIP = "canary", "10.0.0.1"
			pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Args = "canary", []string{"--password=canary"}
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DB", Value: "canary"}}
		}
	}
}

func TestSupportBundle(t *testing.T) {
	server := newAPIServer(t)
	server.supported()
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if out := printed(t, "support-bundle", "-o", file, "--log-lines", "7"); !strings.HasPrefix(out, file+" written: ") {
		t.Error(out)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", err, info)
	}
	archive, err := os.Open(file)
	must.Succeed(t, err)
	defer func() { _ = archive.Close() }()
	files := unpacked(t, archive)
	for name, want := range map[string]string{
		"README.txt":                  "\n  scalers/web/explanation.txt\n",
		"check.txt":                   "VerticalScaler API",
		"scalers/web/scaler.yaml":     "kind: VerticalScaler",
		"scalers/web/explanation.txt": "shop/web",
		"scalers/web/deployment.yaml": "cpu: 500m",
		"scalers/web/pods.yaml":       "cpu: 230m",
		"scalers/late/scaler.yaml":    "deploymentName: late",
		"scaleddeployments.yaml":      "kind: ScaledDeployment",
		"verticalpodautoscalers.yaml": "updateMode: InPlace",
		"events.yaml":                 "Decided by [masked]",
		"limitranges.yaml":            "name: limits",
		"operator/pods.yaml":          "name: app",
		"operator/operator-0.log":     "of 7 lines",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files[name])
		}
	}
	for name, content := range files {
		if strings.Contains(content, "canary") || strings.Contains(content, "10.0.0.1") {
			t.Errorf("%s gives away a secret:\n%s", name, content)
		}
	}
	if len(server.written) > 0 {
		t.Errorf("written %q", server.written)
	}
	if _, errOut, code := run(t, nil, "support-bundle", "-o", file); code != 1 || !strings.Contains(errOut, "file exists") {
		t.Errorf("overwritten: exit code %d: %s", code, errOut)
	}
}

// A bundle of a user with few rights has what may be read, and says what is missing.
func TestSupportBundleWithoutRights(t *testing.T) {
	server := newAPIServer(t)
	server.supported()
	server.forbidden = []string{apps, "/api/v1", "/apis/autoscaling/", coordination}
	files := unpacked(t, strings.NewReader(printed(t, "support-bundle", "-o", "-")))
	if files["scalers/web/scaler.yaml"] == "" || files["scalers/web/pods.yaml"] != "" {
		t.Errorf("%v", files)
	}
	assert.Contains(t, "README.txt", files["README.txt"],
		"Deployment shop/web: ", "HorizontalPodAutoscalers: you may not", "Events: you may not",
		"whether the operator runs: ", "the operator: no pod is found in namespace verticalscaler-system")
}

// A bundle has the policies that the user may read, and their explanations.
func TestSupportBundleHasPolicies(t *testing.T) {
	server := newAPIServer(t)
	server.supported()
	server.put(&v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", Annotations: map[string]string{"a": "canary", v1beta1.PausedAnnotation: "incident"}}},
		&v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Labels: map[string]string{"a": "canary"}}})
	for _, mayReadAll := range []bool{true, false} {
		if !mayReadAll {
			server.forbidden = []string{clusterPolicies}
		}
		files := unpacked(t, strings.NewReader(printed(t, "support-bundle", "-o", "-")))
		policies := files["policies.yaml"]
		if !strings.Contains(policies, "kind: ScalingPolicy\n") || !strings.Contains(policies, "paused: incident") || strings.Contains(policies, "canary") ||
			!strings.Contains(files["policies/ScalingPolicy-own.txt"], "ScalingPolicy shop/own\n") {
			t.Errorf("policies.yaml:\n%s\n%v", policies, files["policies/ScalingPolicy-own.txt"])
		}
		if strings.Contains(policies, "kind: ClusterScalingPolicy\n") != mayReadAll || (files["policies/ClusterScalingPolicy-fleet.txt"] != "") != mayReadAll ||
			strings.Contains(files["README.txt"], "ClusterScalingPolicies: you may not") == mayReadAll {
			t.Errorf("may read all: %t: %s", mayReadAll, fmt.Sprint(files["README.txt"], policies))
		}
	}
}
