// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/authority"
)

var (
	serviceMonitor = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}
	prometheusRule = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}
	networkPolicy  = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
)

// nameOfKind maps kinds to the names of the operator's objects.
var nameOfKind = map[schema.GroupVersionKind]string{
	serviceMonitor: "verticalscaler-operator",
	prometheusRule: "verticalscaler-operator",
	networkPolicy:  "verticalscaler-operator-ingress",
}

// site is the namespace of an operator whose service account has only the rights of the
// Role own-namespace.
type site struct {
	*testing.T
	namespace  string
	deployment *appsv1.Deployment
	agent      string
	said       *lines
	// certDir is the folder of a certificate.
	certDir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, namespace: env.Namespace(t), agent: "provisioner-of-" + t.Name(), said: &lines{}, certDir: t.TempDir()}
	authority.WriteFiles(t, s.certDir, map[string][]byte{"tls.crt": nil})
	s.deployment = testkit.Deployment(s.namespace, "verticalscaler-operator")
	create(t, s.deployment)
	return s
}

// may binds the roles in config/rbac to the service account.
func (s *site) may() *site {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "rbac", "own_namespace.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != 2 {
		s.Fatalf("%d documents in own_namespace.yaml, want a Role and its binding", len(documents))
	}
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	if err := yaml.UnmarshalStrict(documents[0], role); err != nil {
		s.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(documents[1], binding); err != nil {
		s.Fatal(err)
	}
	role.Namespace, binding.Namespace = s.namespace, s.namespace
	binding.Subjects[0].Namespace = s.namespace
	create(s.T, role)
	create(s.T, binding)
	s.eventuallyMay("delete", "networking.k8s.io", "networkpolicies", nameOfKind[networkPolicy])
	return s
}

// eventuallyMay waits until the API server's authorizer knows a right.
func (s *site) eventuallyMay(verb, group, resource, name string) {
	s.Helper()
	testkit.Eventually(s.T, soon, func() string {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + s.namespace + ":operator",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: s.namespace, Verb: verb, Group: group, Resource: resource, Name: name,
			},
		}}
		if err := env.Client.Create(s.Context(), review); err != nil {
			return err.Error()
		}
		if !review.Status.Allowed {
			return "the service account may not " + verb + " " + resource
		}
		return ""
	})
}

// provisioner returns a provisioner that acts as the service account.
func (s *site) provisioner(change ...func(o *provision.Options)) *provision.Provisioner {
	s.Helper()
	o := provision.Options{
		Namespace: s.namespace, Deployment: s.deployment.Name,
		Monitoring: true, NetworkPolicy: true, SecureMetrics: true, CertDir: s.certDir, ResyncPeriod: 10 * time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	c := rest.CopyConfig(env.Config)
	c.UserAgent = s.agent
	c.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":operator"
	p, err := provision.New(c, o)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// round runs one round, and returns its log lines.
func (s *site) round(p *provision.Provisioner, wantDone bool) []string {
	s.Helper()
	if done := p.Round(s.context()); done != wantDone {
		s.Errorf("the round is done: %t; it says %q", done, s.said.seen())
	}
	return s.said.took()
}

func (s *site) context() context.Context {
	return log.IntoContext(s.Context(), funcr.New(s.said.add, funcr.Options{Verbosity: 1}))
}

// get reads an object of the operator; nil if it does not exist.
func (s *site) get(kind schema.GroupVersionKind) *unstructured.Unstructured {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	err := env.Client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: nameOfKind[kind]}, u)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	return u
}

// writes returns the write requests since the mark.
func (s *site) writes(mark testkit.AuditMark) []string {
	s.Helper()
	writes, err := env.WritesSince(mark, s.agent)
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, w := range writes {
		out = append(out, fmt.Sprintf("%s %s %s", w.Verb, w.Resource, w.Name))
	}
	return out
}

// says fails unless each line contains its part.
func (s *site) says(got []string, want ...string) {
	s.Helper()
	if !slices.EqualFunc(got, want, strings.Contains) {
		s.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lines collects the log lines.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, args)
}

func (l *lines) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

func (l *lines) took() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.text
	l.text = nil
	return out
}

var monitoringCRDs = envtest.CRDInstallOptions{
	Paths: []string{filepath.Join("testdata", "monitoring_crds.yaml")}, ErrorIfPathMissing: true,
}

// serveMonitoring switches the API of the Prometheus Operator on or off.
func serveMonitoring(t *testing.T, serve bool) {
	t.Helper()
	var err error
	if serve {
		_, err = envtest.InstallCRDs(env.Config, monitoringCRDs)
	} else {
		err = envtest.UninstallCRDs(env.Config, monitoringCRDs)
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, func() string {
		for _, kind := range []schema.GroupVersionKind{serviceMonitor, prometheusRule} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := env.Client.List(t.Context(), list); (err == nil) != serve {
				return fmt.Sprintf("%s is listed: %v", kind.Kind, err)
			}
		}
		return ""
	})
}

func TestProvisionedIfServed(t *testing.T) {
	serveMonitoring(t, false)
	s := newSite(t).may()
	p := s.provisioner()
	notServed := "Not provisioned: the cluster does not serve its API"
	s.says(s.round(p, true), notServed, notServed, `"Provisioned" "NetworkPolicy"="`+s.namespace+"/verticalscaler-operator-ingress")
	mark := env.Mark()
	s.says(s.round(p, true))
	if got := s.writes(mark); got != nil {
		s.Errorf("written in the second round: %q", got)
	}

	serveMonitoring(t, true)
	testkit.Eventually(t, soon, func() string { // the API server's own discovery may lag behind
		p.Round(s.context())
		if s.get(serviceMonitor) == nil || s.get(prometheusRule) == nil {
			return "it has not noticed that the kinds are served now"
		}
		return ""
	})
	s.said.took()
	before := map[schema.GroupVersionKind]*unstructured.Unstructured{}
	for kind := range nameOfKind {
		u := s.get(kind)
		before[kind] = u
		want := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "verticalscaler-operator", UID: s.deployment.UID}}
		if diff := cmp.Diff(want, u.GetOwnerReferences()); diff != "" {
			t.Errorf("%s: owner references (-want +got):\n%s", kind.Kind, diff)
		}
	}
	mark = env.Mark()
	for range 3 {
		s.says(s.round(s.provisioner(), true)) // also after a restart
	}
	if got := s.writes(mark); got != nil {
		s.Errorf("written while nothing changes: %q", got)
	}
	for kind, u := range before {
		if got := s.get(kind).GetResourceVersion(); got != u.GetResourceVersion() {
			t.Errorf("%s has changed", kind.Kind)
		}
	}

	// The policy allows ingress to one port, and does not restrict egress.
	var policy networkingv1.NetworkPolicy
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: nameOfKind[networkPolicy]}, &policy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]networkingv1.PolicyType{"Ingress"}, policy.Spec.PolicyTypes); diff != "" {
		t.Errorf("policy types (-want +got):\n%s", diff)
	}
	if in := policy.Spec.Ingress; len(in) != 1 || len(in[0].From) != 0 || len(in[0].Ports) != 1 || in[0].Ports[0].Port.String() != "metrics" {
		t.Errorf("the policy lets in %+v", in)
	}
}

func TestProvisionedObjectsAreReverted(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t).may()
	p := s.provisioner()
	s.round(p, true)

	for _, tc := range []struct {
		what   string
		kind   schema.GroupVersionKind
		change func(u *unstructured.Unstructured)
		wrong  func(u *unstructured.Unstructured) bool
	}{
		{
			"another port", networkPolicy,
			func(u *unstructured.Unstructured) { set(u, []any{map[string]any{}}, "spec", "ingress") },
			func(u *unstructured.Unstructured) bool {
				return !strings.Contains(fmt.Sprint(u.Object["spec"]), "port:metrics")
			},
		},
		{
			"an alert less", prometheusRule,
			func(u *unstructured.Unstructured) {
				group := u.Object["spec"].(map[string]any)["groups"].([]any)[0].(map[string]any)
				group["rules"] = group["rules"].([]any)[1:]
			},
			func(u *unstructured.Unstructured) bool {
				return !strings.Contains(fmt.Sprint(u.Object["spec"]), "VerticalScalerDown")
			},
		},
		{
			"another scheme", serviceMonitor,
			func(u *unstructured.Unstructured) {
				u.Object["spec"].(map[string]any)["endpoints"].([]any)[0].(map[string]any)["scheme"] = "http"
			},
			func(u *unstructured.Unstructured) bool {
				return !strings.Contains(fmt.Sprint(u.Object["spec"]), "scheme:https")
			},
		},
		{
			"our label gone", serviceMonitor,
			func(u *unstructured.Unstructured) { u.SetLabels(nil) },
			func(u *unstructured.Unstructured) bool {
				return u.GetLabels()["app.kubernetes.io/managed-by"] != "verticalscaler-operator"
			},
		},
	} {
		u := s.get(tc.kind)
		tc.change(u)
		if err := env.Client.Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		if !tc.wrong(s.get(tc.kind)) {
			t.Fatalf("%s: the change has not been made", tc.what)
		}
		s.says(s.round(p, true), "Reverted changes")
		if u := s.get(tc.kind); tc.wrong(u) {
			t.Errorf("%s was not reverted: %v", tc.what, u.Object)
		}
	}

	// The user's additions stay, also when another field is reverted.
	u := s.get(serviceMonitor)
	u.SetLabels(map[string]string{"release": "prometheus", "app.kubernetes.io/name": "mine"})
	u.SetAnnotations(map[string]string{"note": "ours"})
	if err := env.Client.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	s.says(s.round(p, true), "Reverted changes")
	u = s.get(serviceMonitor)
	if u.GetLabels()["release"] != "prometheus" || u.GetAnnotations()["note"] != "ours" || u.GetLabels()["app.kubernetes.io/name"] != "verticalscaler-operator" {
		t.Errorf("labels %v, annotations %v", u.GetLabels(), u.GetAnnotations())
	}

	// The operator releases fields that an earlier version set, and this one does not.
	former := &unstructured.Unstructured{}
	former.SetGroupVersionKind(serviceMonitor)
	former.SetNamespace(s.namespace)
	former.SetName(u.GetName())
	former.SetLabels(u.GetLabels())
	former.SetOwnerReferences(u.GetOwnerReferences())
	former.Object["spec"] = u.Object["spec"]
	set(former, "app", "spec", "jobLabel")
	if err := env.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(former), client.ForceOwnership, client.FieldOwner(provision.Manager)); err != nil {
		t.Fatal(err)
	}
	s.says(s.round(p, true), "Reverted changes")
	if got := fmt.Sprint(s.get(serviceMonitor).Object["spec"]); strings.Contains(got, "jobLabel") || !strings.Contains(got, "endpoints") {
		t.Errorf("after an earlier version: %s", got)
	}

	// A monitor of an earlier version had Prometheus send its own token to any server. It is
	// replaced, and keeps the labels that others have added.
	former.SetResourceVersion("")
	former.SetManagedFields(nil)
	former.Object["spec"] = map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": "verticalscaler-operator"}},
		"endpoints": []any{map[string]any{
			"port": "metrics", "scheme": "https", "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
			"tlsConfig": map[string]any{"insecureSkipVerify": true},
		}},
	}
	if err := env.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(former), client.ForceOwnership, client.FieldOwner(provision.Manager)); err != nil {
		t.Fatal(err)
	}
	s.says(s.round(p, true), "Reverted changes")
	u = s.get(serviceMonitor)
	if got := fmt.Sprint(u.Object["spec"]); strings.Contains(got, "bearerTokenFile") || strings.Contains(got, "insecureSkipVerify") || !strings.Contains(got, "serverName:verticalscaler-metrics."+s.namespace+".svc") {
		t.Errorf("after an upgrade: %s", got)
	}
	if u.GetLabels()["release"] != "prometheus" {
		t.Errorf("after an upgrade, the labels are %v", u.GetLabels())
	}

	// A deleted object is recreated.
	if err := env.Client.Delete(t.Context(), s.get(networkPolicy)); err != nil {
		t.Fatal(err)
	}
	s.says(s.round(p, true), `"Provisioned" "NetworkPolicy"`)
	mark := env.Mark()
	s.says(s.round(p, true))
	if got := s.writes(mark); got != nil {
		s.Errorf("written in the end: %q", got)
	}
}

func TestProvisionedObjectsAreDeletedWhenSwitchedOff(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t).may()
	s.round(s.provisioner(), true)
	off := s.provisioner(func(o *provision.Options) { o.Monitoring = false })
	s.says(s.round(off, true), "Removed a disabled object", "Removed a disabled object")
	if s.get(serviceMonitor) != nil || s.get(prometheusRule) != nil || s.get(networkPolicy) == nil {
		t.Error("the wrong objects were deleted")
	}
	s.says(s.round(off, true))
	plain := s.provisioner(func(o *provision.Options) { o.SecureMetrics = false })
	s.round(plain, true)
	if got := fmt.Sprint(s.get(serviceMonitor).Object["spec"]); !strings.Contains(got, "scheme:http ") && !strings.Contains(got, "scheme:http]") || strings.Contains(got, "authorization") {
		t.Errorf("metrics that are served plainly are scraped by %s", got)
	}
}

// Without a certificate, the ServiceMonitor exists but Prometheus cannot use it. The operator
// says what is missing, once.
func TestAMissingCertificateIsReported(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t).may()
	p := s.provisioner(func(o *provision.Options) { o.CertDir, o.NetworkPolicy = t.TempDir(), false })
	missing := "Prometheus does not scrape the metrics until they have a certificate"
	s.says(s.round(p, true), `"Provisioned" "ServiceMonitor"`, missing, `"Provisioned" "PrometheusRule"`)
	s.says(s.round(p, true))
	authority.WriteFiles(t, p.CertDir, map[string][]byte{"tls.crt": nil})
	s.says(s.round(p, true))
	plain := s.provisioner(func(o *provision.Options) { o.CertDir, o.SecureMetrics, o.NetworkPolicy = "", false, false })
	s.says(s.round(plain, true), "Reverted changes")
}

func TestProvisioningLeavesForeignObjectsAlone(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t).may()
	foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: nameOfKind[networkPolicy]}}
	create(t, foreign)
	p := s.provisioner()
	s.says(s.round(p, true), `"Provisioned" "ServiceMonitor"`, `"Provisioned" "PrometheusRule"`, "belongs to another owner")
	s.says(s.round(p, true)) // logged once
	s.says(s.round(s.provisioner(func(o *provision.Options) { o.NetworkPolicy = false }), true))
	if got := s.get(networkPolicy); got == nil || got.GetResourceVersion() != foreign.ResourceVersion {
		t.Errorf("the foreign policy has changed: %v", got)
	}

	// An object of a former Deployment of the operator is left to the garbage collector,
	// and recreated once it is deleted.
	if err := env.Client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	foreign = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: nameOfKind[networkPolicy],
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: s.deployment.Name, UID: "gone"}},
	}}
	create(t, foreign)
	s.says(s.round(p, false), "the object of a previous Deployment")
	s.says(s.round(p, false))
	if err := env.Client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	s.says(s.round(p, true), `"Provisioned" "NetworkPolicy"`)
}

func TestProvisioningWithoutRights(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t)
	p := s.provisioner()
	mark := env.Mark()
	s.says(s.round(p, true), "the operator's own Deployment cannot be read")
	s.says(s.round(p, true)) // logged once, and no early retry

	// The service account may read its Deployment, and one kind.
	create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "some"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"get"}},
	}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "some"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "some"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: "operator"}},
	})
	lacks := "the operator lacks the right"
	s.eventuallyMay("get", "networking.k8s.io", "networkpolicies", nameOfKind[networkPolicy])
	s.says(s.round(p, true), lacks, lacks, lacks)
	s.says(s.round(p, true))

	if s.get(networkPolicy) != nil || s.get(serviceMonitor) != nil {
		t.Errorf("written without the right: %q", s.writes(mark))
	}
	s.may() // the next round finds what was missing
	s.says(s.round(p, true), `"Provisioned"`, `"Provisioned"`, `"Provisioned"`)
}

func TestProvisioningWithoutADeployment(t *testing.T) {
	s := newSite(t).may()
	remove(t, s.deployment)
	s.says(s.round(s.provisioner(), true), "the operator's own Deployment cannot be read")
	if s.get(networkPolicy) != nil {
		t.Error("provisioned without an owner")
	}
	// Outside of a cluster, the operator does not know its Deployment.
	if err := s.provisioner(func(o *provision.Options) { o.Namespace = "" }).Start(s.context()); err != nil {
		t.Error(err)
	}
	s.says(s.said.took(), `"POD_NAMESPACE"`)
}

func TestProvisioningRetries(t *testing.T) {
	s := newSite(t).may()
	p := s.provisioner(func(o *provision.Options) { o.Monitoring = false })
	clock := testclock.NewFakeClock(time.Now())
	p.Clock = clock
	ctx, cancel := context.WithCancel(s.context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	waits := func() {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			if s.get(networkPolicy) == nil || !clock.HasWaiters() {
				return "there is no policy"
			}
			return ""
		})
	}
	waits()
	if err := env.Client.Delete(t.Context(), s.get(networkPolicy)); err != nil {
		t.Fatal(err)
	}
	clock.Step(10*time.Minute - time.Second)
	if !clock.HasWaiters() {
		t.Error("it has not waited for the resync period")
	}
	clock.Step(time.Second)
	waits()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The alerts use only metrics and labels that the installed operator exposes when it runs
// as main runs it.
func TestAlertsUseExposedMetrics(t *testing.T) {
	serveMonitoring(t, true)
	s := newSite(t)
	t.Setenv(provision.NamespaceEnv, s.namespace)
	t.Setenv(provision.DeploymentEnv, s.deployment.Name)
	address := testkit.FreeAddress(t)
	c := testkit.OperatorConfig()
	c.Metrics.BindAddress = address
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, s.namespace
	c.Collection.Interval.Duration = 200 * time.Millisecond
	use := testkit.NewUsage()
	use.Set(s.namespace, podOf("web"), "app", 300, 240<<20)
	env.StartOperator(t, c, use, s.namespace)
	testkit.Eventually(t, soon, func() string {
		if s.get(prometheusRule) == nil {
			return "the operator has not made its alerts"
		}
		return ""
	})
	if err := running(t.Context(), s.namespace, "web"); err != nil { // so that there is a recommendation
		t.Fatal(err)
	}
	createScaler(t, s.namespace, "web", "web") // so that there has been a reconcile
	sees(t, s.namespace, "web", present)
	create(t, policyOf(s.namespace, "fleet")) // It promotes, so that there is a halt to ask for.

	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-alerted-metrics-" + s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: "reader"}},
	})
	reader := token(t, s.namespace, "reader")
	var exposed string
	testkit.Eventually(t, soon, func() string {
		var code int
		if code, exposed = get(t, address, reader); code != http.StatusOK {
			return http.StatusText(code) + " " + exposed
		}
		if !strings.Contains(exposed, "verticalscaler_policy_promotion_halted{") {
			return "the policy was not reconciled yet"
		}
		if !strings.Contains(exposed, "verticalscaler_container_lower_bound{") {
			return "there is no recommendation yet"
		}
		return ""
	})

	alerts := alertsOf(t, s.get(prometheusRule))
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for name, expr := range alerts {
		selectors := regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`).FindAllStringSubmatch(expr, -1)
		if len(selectors) == 0 {
			t.Errorf("%s asks for nothing: %s", name, expr)
		}
		var labels []string
		for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
			labels = append(labels, strings.Split(by[1], ", ")...)
		}
		for _, selector := range selectors {
			if !strings.Contains(selector[2], `job="verticalscaler-metrics"`) || !strings.Contains(selector[2], `namespace="`+s.namespace+`"`) {
				t.Errorf("%s asks for anybody's %s", name, selector[1])
			}
			if selector[1] == "up" {
				continue // a label of Prometheus itself
			}
			series := regexp.MustCompile(`(?m)^` + selector[1] + `(?:\{(.*)\})? `).FindStringSubmatch(exposed)
			if series == nil {
				t.Errorf("%s asks for %s, which is not exposed", name, selector[1])
				continue
			}
			for _, label := range labels {
				isOfTarget := slices.Contains([]string{"job", "namespace", "pod"}, label) // set by Prometheus for each target
				if !isOfTarget && !strings.Contains(series[1], label+`="`) {
					t.Errorf("%s groups %s by %s; there is %s", name, selector[1], label, series[1])
				}
			}
		}
	}
}

func alertsOf(t *testing.T, rule *unstructured.Unstructured) map[string]string {
	t.Helper()
	out := map[string]string{}
	groups, _, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			r := r.(map[string]any)
			out[r["alert"].(string)] = r["expr"].(string)
		}
	}
	return out
}

func set(u *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
}
