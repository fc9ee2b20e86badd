// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// install is the operator as kustomize renders it, in the test's own namespace, but without
// the operator's pod. A whole manager runs in the test process, as its service account. The test owns its clock and the usage.
type install struct {
	*testing.T
	system  string
	objects []*unstructured.Unstructured
	// watched is the value of WATCH_NAMESPACE.
	watched []string
	// names maps the namespaces of the manifests to those of the test.
	names map[string]string
	// worlds play the controllers and kubelets of these namespaces, by the namespaces' names.
	worlds map[string]*world.World
	log    logbook
	usage  *testkit.Usage
	clock  *clocktesting.FakeClock
}

// The namespaces of the manifests.
const (
	system = "verticalscaler-system"
	bank   = "bank"
	shop   = "shop"
)

// ownNamespace limits the operator to its own namespace.
func ownNamespace(t *testing.T) *install {
	t.Helper()
	return installed(t, "own-namespace", system)
}

// twoNamespaces limits the operator to two namespaces.
func twoNamespaces(t *testing.T) *install {
	t.Helper()
	return installed(t, "watch-namespaces", system, bank, shop)
}

// installed renders config/default with a component for namespaces of the test, which it creates. It applies nothing yet.
func installed(t *testing.T, component string, namespaces ...string) *install {
	t.Helper()
	folder := t.TempDir()
	root, err := filepath.Rel(folder, testkit.Root())
	must.Succeed(t, err)
	overlay := fmt.Sprintf("resources:\n- %[1]s/config/default\ncomponents:\n- %[1]s/config/components/%[2]s\n", root, component)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(overlay), 0o600))
	i := &install{
		T: t, objects: env.Rendered(t, folder), names: map[string]string{}, worlds: map[string]*world.World{},
		usage: testkit.NewUsage(), clock: clocktesting.NewFakeClock(time.Now()),
	}
	createNodes(t)
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
			must.Succeed(i, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment))
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
	must.Succeed(i, err)
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

// run runs the operator with the applied rights, as the account.
func (i *install) run(ports ...string) (*testkit.Account, *testkit.Operator) {
	i.Helper()
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = time.Minute
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, i.system
	if len(ports) == 2 {
		c.Metrics.BindAddress, c.Health.BindAddress = ports[0], ports[1]
	}
	const name = "verticalscaler-operator"
	i.mayLead(name)
	account := env.Account(i.T, i.system, name)
	// The plugin looks for leases in all namespaces. So these tests are not parallel to others, and leave none.
	i.Cleanup(func() {
		i.cleanUp(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.system, Name: v1beta1.LeaseName}})
	})
	return account, env.RunOperator(i.T, account, c, app.Options{Source: i.usage, Clock: i.clock}, i.log.logger(), i.watched...)
}

// mayLead waits until the API server's authorizer knows the rights of a service account. An earlier refusal counts as a
// missing right.
func (i *install) mayLead(account string) {
	i.Helper()
	learned(i.T, func() string {
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

// in is the world in a namespace. A manager has its own threads, so the test waits for them, with one round of usage and of
// everybody's work in each minute.
func (i *install) in(namespace string) *world.World {
	i.Helper()
	if i.worlds[namespace] == nil {
		i.worlds[namespace] = world.New(i.T, env.Client, namespace, world.Options{RealTime: func(f func() string) {
			i.Helper()
			testkit.Eventually(i.T, 2*time.Minute, func() string {
				i.clock.Step(time.Minute)
				for _, w := range i.worlds {
					w.Round(func() string { return "" })
				}
				return f()
			})
		}})
	}
	return i.worlds[namespace]
}

// deploy runs a Deployment of one pod and its scaler.
func (i *install) deploy(namespace, name string, mode v1beta1.UpdateMode, cpuMillis int64) {
	i.Helper()
	w := i.in(namespace)
	w.Create(testkit.Deployment(namespace, name))
	w.Scale(name, world.InMode(mode))
	for w.Round(func() string { return w.IsRunning(name) }) != "" {
		continue // nothing else happens meanwhile
	}
	i.uses(namespace, name, cpuMillis)
}

// uses sets the CPU of the pod of a Deployment.
func (i *install) uses(namespace, name string, cpuMillis int64) {
	i.Helper()
	pod := i.in(namespace).Pods(name)[0]
	i.usage.Set(namespace, pod.Name, "app", cpuMillis, 240<<20)
	i.usage.Set(namespace, pod.Name, testkit.Sidecar, 10, 16<<20)
}

// isSized lets minutes pass until the pod of a Deployment requests at least so much CPU.
func (i *install) isSized(namespace, name string, least int64) {
	i.Helper()
	w := i.in(namespace)
	w.Until(func() string {
		if got := world.Asked(&w.Pods(name)[0], "app").Requests.Cpu().MilliValue(); got < least {
			return fmt.Sprintf("the pod of %s/%s requests %dm", namespace, name, got)
		}
		return ""
	})
}

// nothingForbidden fails the test if the operator has sent a request that it has no right to.
func (i *install) nothingForbidden(account *testkit.Account) {
	i.Helper()
	for _, request := range account.Forbidden() {
		i.Errorf("forbidden: %s", request)
	}
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

// An installation for some namespaces grants the operator no right anywhere else, and all rights that it needs there.
func TestTheOperatorWorksWithRightsOnlyInItsNamespaces(t *testing.T) {
	for name, render := range map[string]func(*testing.T) *install{"own namespace": ownNamespace, "two namespaces": twoNamespaces} {
		t.Run(name, func(t *testing.T) {
			i := render(t)
			i.grantsNothingElsewhere()
			i.worksWithin()
		})
	}
}

func (i *install) grantsNothingElsewhere() {
	i.Helper()
	bound := map[string]bool{} // namespaces with the manager's rights
	for _, object := range i.objects {
		switch kind, short := object.GetKind(), strings.TrimPrefix(object.GetName(), i.system+"-verticalscaler-"); kind {
		case "ClusterRoleBinding":
			i.Errorf("ClusterRoleBinding %s", object.GetName())
		case "ClusterRole": // unbound, or bound in namespaces
			if !slices.Contains([]string{"viewer", "editor", "resizer", "manager", "manager-rollout", "manager-scaled-deployment"}, short) {
				i.Errorf("ClusterRole %s", object.GetName())
			}
		case "RoleBinding":
			if object.GetName() == "verticalscaler-manager" {
				bound[object.GetNamespace()] = true
			}
		}
	}
	if diff := cmp.Diff(i.watched, slices.Sorted(maps.Keys(bound))); diff != "" || len(bound) == 0 {
		i.Errorf("the namespaces of WATCH_NAMESPACE and those with rights (-watched +bound):\n%s", diff)
	}
}

func (i *install) worksWithin() {
	i.Helper()
	i.apply(func(*unstructured.Unstructured) bool { return true })
	other := env.Namespace(i.T)
	i.deploy(other, "web", v1beta1.UpdateModeInPlace, 300)
	for _, namespace := range i.watched {
		i.deploy(namespace, "web", v1beta1.UpdateModeInPlace, 300)
		i.deploy(namespace, "rolled", v1beta1.UpdateModeRollout, 500) // needs the rights to change a template, and to restore it
	}
	metrics, health := testkit.FreeAddress(i.T), testkit.FreeAddress(i.T)
	mark := env.Mark()
	account, operator := i.run(metrics, health)
	for _, namespace := range i.watched {
		w := i.in(namespace)
		requests := func(is func(cpuMillis int64) bool) {
			w.Helper()
			w.Until(func() string {
				if cpu := w.Deployment("rolled").Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); !is(cpu.MilliValue()) {
					return fmt.Sprintf("the template of rolled requests %s", cpu)
				}
				return ""
			})
		}
		requests(func(cpuMillis int64) bool { return cpuMillis >= 500 })
		i.isSized(namespace, "web", 300)
		w.Reports("web", v1beta1.ConditionClusterAccess, "False", v1beta1.ReasonNamespacedInstall,
			strings.Join(i.watched, ", ")+".", "It reads no nodes", "admission policies")
		w.Remove(w.Scaler("rolled"))
		requests(func(cpuMillis int64) bool { return cpuMillis == 100 }) // as before
	}

	if body, code := get(i.T, "https://"+metrics+"/metrics"); code != http.StatusForbidden || !strings.Contains(body, "lacks the right to create tokenreviews") {
		i.Errorf("/metrics answers %d: %s", code, body)
	}
	if n := i.log.count("A feature is disabled", "metrics", "tokenreviews"); n != 1 {
		i.Errorf("the log says %d times that requests for metrics are rejected", n)
	}
	if body, code := get(i.T, "http://"+health+"/readyz"); code != http.StatusOK {
		i.Errorf("/readyz answers %d: %s", code, body)
	}
	if s := i.in(other).Scaler("web"); len(s.Status.Conditions) > 0 || len(s.Status.Annotations) > 0 {
		i.Errorf("a scaler of another namespace says %+v", s.Status)
	}
	operator.Stop(i.T)
	writes := env.Writes(i.T, mark, operator.Agent)
	if len(writes) == 0 {
		i.Fatal("no writes")
	}
	for _, write := range writes {
		if !slices.Contains(append(slices.Clone(i.watched), i.system, ""), write.Namespace) {
			i.Errorf("written elsewhere: %s", write)
		}
	}
	i.nothingForbidden(account)
}

// A namespace without rights does not affect the other namespaces. The operator watches it once it has the rights.
func TestANamespaceThatCannotBeReadDoesNotBlockOthers(t *testing.T) {
	i := twoNamespaces(t)
	theBank, theShop := i.names[bank], i.names[shop]
	i.apply(func(object *unstructured.Unstructured) bool { return object.GetNamespace() != theBank })
	for _, namespace := range i.watched {
		i.deploy(namespace, "web", v1beta1.UpdateModeInPlace, 300)
	}
	health := testkit.FreeAddress(t)
	account, _ := i.run("0", health)
	i.isSized(theShop, "web", 300)
	if body, code := get(t, "http://"+health+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz answers %d: %s", code, body)
	}
	if n := i.log.count("A feature is disabled", theBank, "list", "pods"); n == 0 {
		t.Errorf("the log does not say that namespace %s is not watched: %s", theBank, i.log.lines)
	}
	if s := i.in(theBank).Scaler("web"); len(s.Status.Conditions) > 0 {
		t.Errorf("an unreadable scaler says %+v", s.Status.Conditions)
	}

	i.apply(func(object *unstructured.Unstructured) bool { return object.GetNamespace() == theBank })
	i.uses(theShop, "web", 600)
	i.isSized(theBank, "web", 300)
	i.isSized(theShop, "web", 600)
	i.nothingForbidden(account)
}

// get returns the body and the code of the answer, or the error.
func get(t *testing.T, url string) (body string, code int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	return string(content), response.StatusCode
}
