// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	// System is the namespace of config/default.
	System = "verticalscaler-system"
	// ServiceAccount is the operator's service account there.
	ServiceAccount = "verticalscaler-operator"
)

// Rendered returns the objects that kustomize renders from a folder.
func (e *Env) Rendered(t testing.TB, folder string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := e.render(t.Context(), folder)
	must.Succeed(t, err)
	return objects
}

func (e *Env) render(ctx context.Context, folder string) (objects []*unstructured.Unstructured, err error) {
	stream, err := exec.CommandContext(ctx, e.Kubectl(), "kustomize", folder).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("rendering %s: %w", folder, err)
	}
	return Decoded(stream)
}

// Decoded are the objects of a stream of YAML documents.
func Decoded(stream []byte) (objects []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding objects: %w", err)
		}
		objects = append(objects, object)
	}
}

// apply applies an object as the administrator.
func (e *Env) apply(ctx context.Context, object *unstructured.Unstructured) error {
	if err := e.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("testkit"), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// InstalledMain runs a package's tests like ClusterMain, on a cluster with config/default,
// except the operator's pod. The operators that tests start have the rights of its service
// account, and the admission policies apply to them. New pods get a sidecar.
func InstalledMain(m *testing.M, env **Env) int {
	return mainWith(m, env, func() (*Env, error) {
		e, err := StartCluster()
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		if err := cmp.Or(e.Install(ctx), e.InjectSidecars(ctx)); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
		return e, nil
	})
}

// Install applies config/default, except the CRDs, which exist already, and the operator's
// pod with its related objects.
func (e *Env) Install(ctx context.Context) error {
	objects, err := e.render(ctx, filepath.Join(Root(), "config", "default"))
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition", "Deployment", "ConfigMap", "Service":
			continue
		}
		if err := e.apply(ctx, object); err != nil {
			return err
		}
	}
	e.actsAs = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + System + ":" + ServiceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + System, "system:authenticated"},
	}
	return nil
}

// InstallComponents applies folders of config/ whose rights are opt-in, and grants them to the operator's service account.
func (e *Env) InstallComponents(ctx context.Context, names ...string) error {
	for _, name := range names {
		objects, err := e.render(ctx, filepath.Join(Root(), "config", name))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetKind() == "ClusterRoleBinding" {
				subject := map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": System, "name": ServiceAccount}
				if err := unstructured.SetNestedSlice(object.Object, []any{subject}, "subjects"); err != nil {
					return fmt.Errorf("granting %s: %w", name, err)
				}
			}
			if err := e.apply(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// Account is a service account as its pod uses it. It records the requests that the API
// server forbids.
type Account struct {
	// Config has the account's token.
	Config *rest.Config

	mu        sync.Mutex
	forbidden []string
}

// Account gets a token for a service account.
func (e *Env) Account(t testing.TB, namespace, name string) *Account {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("getting a token for service account %s/%s: %v", namespace, name, err)
	}
	a := &Account{Config: rest.AnonymousClientConfig(e.Config)}
	a.Config.BearerToken = request.Status.Token
	a.Config.QPS, a.Config.Burst = -1, -1
	a.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return overheard{a, next} })
	return a
}

// Forbidden lists the forbidden requests, each kind once.
func (a *Account) Forbidden() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.forbidden)
	return slices.Compact(slices.Clone(a.forbidden))
}

// overheard passes requests on and records those that are forbidden, including reads, which
// the audit log omits. It leaves out those that no right would allow, because their namespace is being deleted.
type overheard struct {
	account *Account
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o overheard) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusForbidden {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading why %s %s is forbidden: %w", request.Method, request.URL.Path, err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(corev1.NamespaceTerminatingCause)) {
		o.account.mu.Lock()
		defer o.account.mu.Unlock()
		o.account.forbidden = append(o.account.forbidden, request.Method+" "+request.URL.Path)
	}
	return response, nil
}

// RunOperator runs the operator as main does, except for its options: as the account,
// with the logger. It checks its own rights, too. It stops with the test, or before.
func (e *Env) RunOperator(t testing.TB, a *Account, c operatorconfig.Operator, options app.Options, logger logr.Logger, namespaces ...string) *Operator {
	t.Helper()
	o := &Operator{Agent: "operator-of-" + t.Name()}
	restConfig := rest.CopyConfig(a.Config)
	restConfig.UserAgent = o.Agent
	ctx, cancel := context.WithCancel(log.IntoContext(context.Background(), logger))
	ended := make(chan error, 1)
	go func() { ended <- app.RunInNamespaces(ctx, restConfig, c, options, namespaces...) }()
	o.stop = sync.OnceValue(func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("running the operator: %w", err)
		}
		return nil
	})
	t.Cleanup(func() { must.Succeed(t, o.stop()) })
	return o
}
