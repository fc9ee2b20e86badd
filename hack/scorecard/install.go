// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// bundle is what a bundle installs.
type bundle struct {
	name, version string
	deployment    string // its name
	configuration []byte // the operator's configuration file
	// objects are those of manifests/, and those that OLM makes of the CSV, where the
	// operator watches all namespaces.
	objects []*unstructured.Unstructured
}

// readBundle reads a bundle, and does what OLM does with it.
func readBundle(folder string) (*bundle, error) {
	files, err := filepath.Glob(filepath.Join(folder, "manifests", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the bundle's manifests: %w", err)
	}
	b := &bundle{}
	made := []client.Object{&corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: stage.SystemNamespace}}}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		objects, err := stage.Decode(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, object := range objects {
			switch object.GetKind() {
			case operatorsv1alpha1.ClusterServiceVersionKind:
				var csv operatorsv1alpha1.ClusterServiceVersion
				if err := yaml.UnmarshalStrict(content, &csv); err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				b.name, b.version = csv.Name, csv.Spec.Version.String()
				made = append(made, madeOf(&csv)...)
				b.deployment = csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Name
			case "ConfigMap":
				text, _, err := unstructured.NestedString(object.Object, "data", "config.yaml")
				if err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				b.configuration = []byte(text)
				fallthrough
			case "Service":
				object.SetNamespace(stage.SystemNamespace)
				b.objects = append(b.objects, object)
			default:
				b.objects = append(b.objects, object)
			}
		}
	}
	if b.name == "" || len(b.configuration) == 0 {
		return nil, fmt.Errorf("%s has no ClusterServiceVersion or no configuration", folder)
	}
	var first []*unstructured.Unstructured
	for _, object := range made {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", object.GetName(), err)
		}
		first = append(first, &unstructured.Unstructured{Object: content})
	}
	b.objects = append(first, b.objects...)
	return b, nil
}

// madeOf are the objects that OLM makes of a CSV where the operator watches all
// namespaces: what is granted in namespaces is then granted in the cluster. The
// Deployment has no pod: the operator is a process here.
func madeOf(csv *operatorsv1alpha1.ClusterServiceVersion) (objects []client.Object) {
	strategy := csv.Spec.InstallStrategy.StrategySpec
	for i, p := range append(strategy.Permissions, strategy.ClusterPermissions...) {
		name := fmt.Sprintf("%s-%d", csv.Name, i)
		objects = append(
			objects,
			&corev1.ServiceAccount{
				TypeMeta:   kind("v1", "ServiceAccount"),
				ObjectMeta: metav1.ObjectMeta{Namespace: stage.SystemNamespace, Name: p.ServiceAccountName},
			},
			&rbacv1.ClusterRole{TypeMeta: kind(rbacv1.SchemeGroupVersion.String(), "ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: p.Rules},
			&rbacv1.ClusterRoleBinding{
				TypeMeta:   kind(rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding"),
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: stage.SystemNamespace, Name: p.ServiceAccountName}},
			},
		)
	}
	for _, d := range strategy.DeploymentSpecs {
		deployment := &appsv1.Deployment{
			TypeMeta:   kind(appsv1.SchemeGroupVersion.String(), "Deployment"),
			ObjectMeta: metav1.ObjectMeta{Namespace: stage.SystemNamespace, Name: d.Name, Labels: d.Label},
			Spec:       d.Spec,
		}
		deployment.Spec.Replicas = ptr.To[int32](0)
		objects = append(objects, deployment)
	}
	return objects
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// withoutPorts is the bundle's configuration, but for what needs a pod: ports of its own
// and a namespace that it finds by itself.
func withoutPorts(configuration []byte) ([]byte, error) {
	if _, err := config.Parse(configuration); err != nil {
		return nil, fmt.Errorf("the bundle's configuration: %w", err)
	}
	var c map[string]any
	if err := yaml.Unmarshal(configuration, &c); err != nil {
		return nil, fmt.Errorf("the bundle's configuration: %w", err)
	}
	for _, change := range []struct {
		value string
		path  []string
	}{
		{"0", []string{"metrics", "bindAddress"}},
		{"0", []string{"health", "bindAddress"}},
		{stage.SystemNamespace, []string{"leaderElection", "namespace"}},
	} {
		if err := unstructured.SetNestedField(c, change.value, change.path...); err != nil {
			return nil, fmt.Errorf("changing %s of the bundle's configuration: %w", strings.Join(change.path, "."), err)
		}
	}
	return yaml.Marshal(c)
}

// access is how tests reach the cluster, as their pods would.
type access struct {
	host, port string
	token      []byte
	ca         []byte
	namespace  string
}

// newAccess applies config/scorecard/rbac.yaml, and asks for a token of the service
// account that is in it.
func newAccess(ctx context.Context, admin hostAndCA, c client.Client, root string) (*access, error) {
	content, err := os.ReadFile(filepath.Join(root, "config", "scorecard", "rbac.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the tests' rights: %w", err)
	}
	objects, err := stage.Decode(content)
	if err != nil {
		return nil, fmt.Errorf("the tests' rights: %w", err)
	}
	if err := stage.Apply(ctx, c, objects...); err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() != "ServiceAccount" {
			continue
		}
		token, err := stage.Token(ctx, c, object.GetNamespace(), object.GetName())
		if err != nil {
			return nil, err
		}
		return accessTo(admin, token, object.GetNamespace())
	}
	return nil, errors.New("config/scorecard/rbac.yaml has no ServiceAccount")
}
