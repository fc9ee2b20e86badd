// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// install is the operator as kustomize renders it, in the test's own namespace, but without
// the operator's pod. The operator runs in the test process, as its service account.
type install struct {
	*testing.T
	system  string
	objects []*unstructured.Unstructured
	// watched is the value of WATCH_NAMESPACE.
	watched []string
	// names maps the namespaces of the manifests to those of the test.
	names map[string]string
	log   logbook
}

// The namespaces of the manifests.
const (
	system = "verticalscaler-system"
	bank   = "bank"
	shop   = "shop"
)

// ownNamespace limits the operator to its own namespace, as config/default documents.
func ownNamespace(t *testing.T) *install {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(testkit.Root(), "config"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config", "default", "kustomization.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const line = "- ../components/own-namespace"
	if !strings.Contains(string(content), "\n# "+line+"\n") {
		t.Fatalf("config/default does not contain the line %s", line)
	}
	content = []byte(strings.Replace(string(content), "\n# "+line+"\n", "\n"+line+"\n", 1))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return installed(t, filepath.Dir(path), system)
}

// twoNamespaces limits the operator to two namespaces, as the component documents.
func twoNamespaces(t *testing.T) *install {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Rel(dir, testkit.Root())
	if err != nil {
		t.Fatal(err)
	}
	overlay := fmt.Sprintf("resources:\n- %[1]s/config/default\ncomponents:\n- %[1]s/config/components/watch-namespaces\n", root)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	return installed(t, dir, system, bank, shop)
}

// allNamespaces is config/default unchanged.
func allNamespaces(t *testing.T) *install {
	t.Helper()
	return installed(t, filepath.Join(testkit.Root(), "config", "default"), system)
}

// installed renders a folder for namespaces of the test, which it creates. It applies
// nothing yet.
func installed(t *testing.T, folder string, namespaces ...string) *install {
	t.Helper()
	i := &install{T: t, objects: env.Rendered(t, folder), names: map[string]string{}}
	for _, name := range namespaces {
		i.names[name] = env.Namespace(t)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.names[name]}}
		t.Cleanup(func() { i.cleanUp(namespace) })
	}
	i.system = i.names[system]
	for _, object := range i.objects {
		i.rename(object.Object)
	}
	i.watched = i.watchNamespace()
	return i
}

func (i *install) cleanUp(obj client.Object) {
	if err := env.Client.Delete(context.Background(), obj); client.IgnoreNotFound(err) != nil {
		i.Logf("deleting %T %s: %v", obj, obj.GetName(), err)
	}
}

// rename replaces the manifests' namespaces by the test's, and adds the operator's
// namespace to the names of cluster-scoped objects, so that tests run in parallel.
func (i *install) rename(fields map[string]any) {
	for key, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			i.rename(value)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					i.rename(item)
				}
			}
		case string:
			if name, ok := i.names[value]; ok && key == "namespace" {
				fields[key] = name
			}
		}
	}
	kind, _ := fields["kind"].(string)
	metadata, _ := fields["metadata"].(map[string]any)
	if name, _ := metadata["name"].(string); strings.HasPrefix(kind, "ClusterRole") && metadata != nil {
		metadata["name"] = i.system + "-" + name
	}
	if ref, ok := fields["roleRef"].(map[string]any); ok && ref["kind"] == "ClusterRole" {
		ref["name"] = fmt.Sprintf("%s-%s", i.system, ref["name"])
	}
}

// watchNamespace returns the value of WATCH_NAMESPACE in the operator's Deployment.
func (i *install) watchNamespace() []string {
	i.Helper()
	deployment := &appsv1.Deployment{}
	for _, object := range i.objects {
		if object.GetKind() == "Deployment" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
				i.Fatal(err)
			}
		}
	}
	value := ""
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		switch {
		case variable.Name != app.WatchNamespaceEnv:
		case variable.ValueFrom != nil && variable.ValueFrom.FieldRef.FieldPath == "metadata.namespace":
			value = i.system
		default:
			value = variable.Value
			for from, to := range i.names {
				value = regexp.MustCompile(`\b`+from+`\b`).ReplaceAllString(value, to)
			}
		}
	}
	namespaces, err := app.Namespaces(value)
	if err != nil {
		i.Fatal(err)
	}
	return namespaces
}

// apply applies the objects that the filter selects: the roles, and the service account
// that they are bound to.
func (i *install) apply(wanted func(*unstructured.Unstructured) bool) {
	i.Helper()
	for _, object := range i.objects {
		switch object.GetKind() {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		default:
			continue
		}
		if !wanted(object) {
			continue
		}
		config := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := env.Client.Apply(i.Context(), config, client.FieldOwner("test"), client.ForceOwnership); err != nil {
			i.Fatalf("applying %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if object.GetNamespace() == "" {
			i.Cleanup(func() { i.cleanUp(object) })
		}
	}
}

func everything(*unstructured.Unstructured) bool { return true }

// run runs the operator with the applied rights.
func (i *install) run(usage *podUsage, ports ...string) (*testkit.Account, *testkit.Operator) {
	i.Helper()
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = round
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, i.system
	if len(ports) == 2 {
		c.Metrics.BindAddress, c.Health.BindAddress = ports[0], ports[1]
	}
	const name = "verticalscaler-operator"
	i.mayLead(name)
	account := env.Account(i.T, i.system, name)
	return account, env.RunOperator(i.T, account, c, usage, i.log.logger(), i.watched...)
}

// mayLead waits until the API server's authorizer knows the rights of a service account. What is refused before counts as
// a missing right.
func (i *install) mayLead(account string) {
	i.Helper()
	testkit.Eventually(i.T, soon, func() string {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + i.system + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: i.system, Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Name: v1beta1.LeaseName,
			},
		}}
		if err := env.Client.Create(i.Context(), review); err != nil {
			return err.Error()
		}
		if !review.Status.Allowed {
			return "the operator may not read its lease: " + review.Status.Reason
		}
		return ""
	})
}

// place returns a fixture for one of the namespaces.
func (i *install) place(name string, usage *podUsage) *fixture {
	i.Helper()
	w := &fixture{T: i.T, namespace: name, usage: usage}
	w.eventually(func() string { // pods need the service account
		return said(env.Client.Get(i.Context(), w.key("default"), &corev1.ServiceAccount{}))
	})
	return w
}

// logbook records the log lines.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, prefix+" "+args)
	}, funcr.Options{})
}

// count counts the lines that contain all the words.
func (l *logbook) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// An installation for some namespaces grants the operator no right anywhere else.
func TestNamespacedInstallsGrantNoRightsInTheWholeCluster(t *testing.T) {
	t.Parallel()
	for name, render := range map[string]func(*testing.T) *install{"own namespace": ownNamespace, "two namespaces": twoNamespaces} {
		t.Run(name, func(t *testing.T) {
			i := render(t)
			bound := map[string]bool{} // namespaces with the manager's rights
			for _, object := range i.objects {
				switch kind, short := object.GetKind(), strings.TrimPrefix(object.GetName(), i.system+"-verticalscaler-"); kind {
				case "ClusterRoleBinding":
					t.Errorf("ClusterRoleBinding %s", object.GetName())
				case "ClusterRole": // unbound, or bound in namespaces
					if !slices.Contains([]string{"viewer", "editor", "resizer", "manager", "manager-rollout", "manager-scaled-deployment"}, short) {
						t.Errorf("ClusterRole %s", object.GetName())
					}
				case "RoleBinding":
					if object.GetName() == "verticalscaler-manager" {
						bound[object.GetNamespace()] = true
					}
				}
			}
			if diff := cmp.Diff(i.watched, slices.Sorted(maps.Keys(bound))); diff != "" || len(bound) == 0 {
				t.Errorf("the namespaces of WATCH_NAMESPACE and those with rights (-watched +bound):\n%s", diff)
			}
		})
	}
}

func TestTheOperatorWorksWithRightsOnlyInItsNamespaces(t *testing.T) {
	t.Parallel()
	for name, render := range map[string]func(*testing.T) *install{"own namespace": ownNamespace, "two namespaces": twoNamespaces} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worksWithin(t, render(t))
		})
	}
}

func worksWithin(t *testing.T, i *install) {
	t.Helper()
	env.NeedAudit(t)
	i.apply(everything)
	usage := &podUsage{Usage: testkit.NewUsage()}
	other := i.place(env.Namespace(t), usage)
	t.Cleanup(func() { i.cleanUp(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.namespace}}) })
	for _, w := range append(i.places(usage), other) {
		w.deploy("web")
		w.scale("web")
		w.scale("late") // this Deployment does not exist yet
	}
	usage.everywhere("web", 300, 240)
	usage.everywhere("late", 400, 240)
	usage.everywhere("rolled", 500, 240)

	metrics, health := testkit.FreeAddress(t), testkit.FreeAddress(t)
	account, operator := i.run(usage, metrics, health)
	for _, w := range i.places(usage) {
		requests := w.sized("web")
		w.between("cpu", *requests.Cpu(), "330m", "380m")
		w.says("web", "ClusterAccess", "False", "NamespacedInstall",
			strings.Join(i.watched, ", ")+".", "It reads no nodes", "admission policies")
		w.says("web", "Ready", "True", "OperatingNormally")
		w.says("late", "TargetFound", "False", "DeploymentNotFound")
	}
	// Only the look-up by claim can notice this change: there is no resync, and the scaler
	// is settled.
	for _, w := range i.places(usage) {
		w.deploy("late")
		requests := w.sized("late")
		w.between("cpu", *requests.Cpu(), "440m", "500m")
		// The rights to change a template, and to restore it.
		w.deploy("rolled")
		w.scale("rolled", inMode("Rollout"))
		w.sized("rolled")
		w.remove(w.scaler("rolled"))
		w.gone(testkit.Scaler(w.namespace, "rolled", "rolled"))
		if cpu := w.deployment("rolled").Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "100m" {
			w.Errorf("the template requests %s after it was restored", cpu)
		}
	}

	if body, code := get(t, "https://"+metrics+"/metrics"); code != http.StatusForbidden || !strings.Contains(body, "lacks the right to create tokenreviews") {
		t.Errorf("/metrics answers %d: %s", code, body)
	}
	if n := i.log.count("All requests for /metrics are rejected", "tokenreviews"); n != 1 {
		t.Errorf("the log says %d times that requests for metrics are rejected", n)
	}
	if body, code := get(t, "http://"+health+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d: %s", code, body)
	}
	for _, name := range []string{"web", "late"} {
		if s := other.scaler(name); len(s.Status.Conditions) > 0 || len(s.Status.Annotations) > 0 {
			t.Errorf("a scaler of another namespace says %+v", s.Status)
		}
	}
	writes, err := env.WritesSince(0, operator.Agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range writes {
		if !slices.Contains(append(slices.Clone(i.watched), i.system, ""), write.Namespace) {
			t.Errorf("written elsewhere: %s", write)
		}
	}
	for _, request := range account.Forbidden() {
		t.Errorf("forbidden: %s", request)
	}
	t.Logf("%d writes, none of them forbidden", len(writes))
}

// places are the watched namespaces.
func (i *install) places(usage *podUsage) (places []*fixture) {
	i.Helper()
	for _, name := range i.watched {
		places = append(places, i.place(name, usage))
	}
	return places
}

// everywhere sets the usage of the pods of Deployments with that name, in all namespaces.
func (c *podUsage) everywhere(deployment string, cpuMillis, memoryMebi int64) {
	(&fixture{usage: c}).uses(deployment, "app", cpuMillis, memoryMebi)
}

// A namespace without rights does not affect the other namespaces. The operator watches it
// once it has the rights.
func TestANamespaceThatCannotBeReadDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	i := twoNamespaces(t)
	theBank, theShop := i.names[bank], i.names[shop]
	i.apply(func(object *unstructured.Unstructured) bool { return object.GetNamespace() != theBank })
	usage := &podUsage{Usage: testkit.NewUsage()}
	usage.everywhere("web", 300, 240)
	for _, w := range i.places(usage) {
		w.deploy("web")
		w.scale("web")
	}
	health := testkit.FreeAddress(t)
	account, operator := i.run(usage, "0", health)
	first := i.place(theShop, usage)
	first.sized("web")
	if body, code := get(t, "http://"+health+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d: %s", code, body)
	}
	if n := i.log.count("are not watched", "namespace "+theBank+": may not list", "pods"); n != 1 {
		t.Errorf("the log says %d times that namespace %s is not watched: %s", n, theBank, i.log.lines)
	}
	second := i.place(theBank, usage)
	if s := second.scaler("web"); len(s.Status.Conditions) > 0 {
		t.Errorf("an unreadable scaler says %+v", s.Status.Conditions)
	}

	mark := env.Mark()
	i.apply(func(object *unstructured.Unstructured) bool { return object.GetNamespace() == theBank })
	second.sized("web")
	// The first operator has seen none of the changes.
	first.uses("web", "app", 600, 240)
	first.eventually(func() string {
		if cpu := first.sized("web").Cpu().MilliValue(); cpu < 600 {
			return fmt.Sprintf("%dm of CPU", cpu)
		}
		return ""
	})
	for _, request := range account.Forbidden() {
		t.Errorf("forbidden: %s", request)
	}
	if writes, err := env.WritesSince(mark, operator.Agent); err != nil || len(writes) == 0 {
		t.Errorf("%d writes, %v", len(writes), err)
	}
}

// If no namespace is readable, the operator reports it and waits.
func TestAnOperatorThatCanReadNothingReportsIt(t *testing.T) {
	t.Parallel()
	i := twoNamespaces(t)
	i.apply(func(object *unstructured.Unstructured) bool { return object.GetNamespace() == i.system })
	health := testkit.FreeAddress(t)
	account, _ := i.run(&podUsage{Usage: testkit.NewUsage()}, "0", health)
	testkit.Eventually(t, soon, func() string {
		body, code := get(t, "http://"+health+"/readyz")
		if code != http.StatusInternalServerError || !strings.Contains(body, "[-]namespaces failed") {
			return fmt.Sprintf("/readyz answers %d: %s", code, body)
		}
		return ""
	})
	if _, code := get(t, "http://"+health+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answers %d: the kubelet would restart the pod again and again", code)
	}
	if n := i.log.count("are not watched", "namespace "+i.names[bank], "namespace "+i.names[shop]); n != 1 {
		t.Errorf("the log names the two namespaces %d times", n)
	}
	for _, request := range account.Forbidden() {
		t.Errorf("forbidden: %s", request)
	}
}

// An operator that watches all namespaces does not let a pod outgrow its share of the largest node. An
// operator without the right to read nodes reports that. Such operators act on the scalers
// of all tests, so this test runs alone.
func TestTheLargestNodeBoundsAPod(t *testing.T) {
	i := allNamespaces(t)
	i.apply(func(object *unstructured.Unstructured) bool {
		return !strings.HasSuffix(object.GetName(), "manager-cluster")
	})
	usage := &podUsage{Usage: testkit.NewUsage()}
	w := i.place(i.system, usage)
	w.deploy("web")
	w.scale("web")
	w.uses("web", "app", 300, 240)
	account, operator := i.run(usage)
	w.says("web", "ClusterAccess", "False", "NodesForbidden", "may not list and watch nodes")
	w.says("web", "Ready", "True", "OperatingNormally")
	w.sized("web")
	if n := i.log.count("Nodes are not read"); n != 1 {
		t.Errorf("the log says %d times that nodes are not read", n)
	}
	operator.Stop(t)

	i.apply(everything)
	second, _ := i.run(usage)
	w.eventually(func() string {
		if c := meta.FindStatusCondition(w.scaler("web").Status.Conditions, "ClusterAccess"); c != nil {
			return fmt.Sprintf("ClusterAccess is %+v", c)
		}
		return ""
	})
	node := largestNode(t)
	share := node * 75 / 100
	w.uses("web", "app", 2*node, 240)
	w.says("web", "Applied", "True", "OperatorCeiling", "is recommended or required by minAllowed", "for a pod, which is 75 % of the largest node (ceilings.nodePercent)")
	for _, pod := range w.pods("web") {
		got := actual(pod, "app").Requests.Cpu().MilliValue()
		for _, sidecar := range pod.Spec.InitContainers {
			got += sidecar.Resources.Requests.Cpu().MilliValue()
		}
		if got != share {
			t.Errorf("pod %s requests %dm; 75 %% of the largest node are %dm", pod.Name, got, share)
		}
	}
	w.says("web", "Ready", "True", "OperatingNormally")
	for _, request := range append(account.Forbidden(), second.Forbidden()...) {
		// Namespaces of earlier tests are being deleted, and reject new objects.
		if !strings.Contains(request, "/namespaces/") || strings.Contains(request, "/namespaces/"+i.system+"/") {
			t.Errorf("forbidden: %s", request)
		}
	}
}

// largestNode is the CPU of the largest node in millicores.
func largestNode(t *testing.T) (millis int64) {
	t.Helper()
	var nodes corev1.NodeList
	if err := env.Client.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		millis = max(millis, node.Status.Allocatable.Cpu().MilliValue())
	}
	return millis
}

// get returns the body and the code of the answer, or the error.
func get(t *testing.T, url string) (body string, code int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	clientOfNobody := http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	response, err := clientOfNobody.Do(request)
	if err != nil {
		return err.Error(), 0
	}
	defer response.Body.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), response.StatusCode
}
