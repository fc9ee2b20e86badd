// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/rollback"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	ours            = "/apis/autoscaling.verticalscaler.io/v1beta1"
	ofShop          = ours + "/namespaces/shop"
	apps            = "/apis/apps/v1"
	coordination    = "/apis/coordination.k8s.io/v1"
	metricsPath     = "/apis/metrics.k8s.io/v1beta1"
	usageAPI        = metricsPath + "/namespaces/shop/pods"
	vpaAPI          = "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers"
	policies        = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	clusterPolicies = ours + "/clusterscalingpolicies"
	reviews         = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	accessReviews   = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

var kinds = runtime.NewScheme()

func init() {
	utilruntime.Must(scheme.AddToScheme(kinds))
	utilruntime.Must(v1beta1.AddToScheme(kinds))
}

// apiServer is an API server with the objects that are put into it. It serves all namespaces but elsewhere.
type apiServer struct {
	mu        sync.Mutex
	objects   map[string]client.Object           // by path
	answers   map[string]func(*http.Request) any // by path, for what is no object
	pageSize  int                                // of lists, whatever is asked for; 0 for no limit
	forbidden []string                           // beginnings of paths
	refused   string                             // beginning of the paths at which writes are refused
	asked     map[string]int
	conflicts int      // how many patches are refused, as if another writer were faster
	written   []string // what was asked to be changed, but for reviews: the method, the path with its query, and the body
}

// startServer starts a server with an operator only, and makes it that of the kubeconfig, with the namespace shop.
func startServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{asked: map[string]int{}, objects: map[string]client.Object{}, answers: map[string]func(*http.Request) any{}}
	s.answer("/version", apiversion.Info{GitVersion: "v1.37.1"})
	s.may(true)
	s.lastHeard(time.Second)
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","namespace":"shop"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}]}`, serve(t, s.serve))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	t.Setenv("KUBECONFIG", file)
	return s
}

// pathOf is the path of a kind, in a namespace if it is not empty.
func pathOf(kind schema.GroupVersionKind, namespace string) string {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	if kind.Kind == "PodMetrics" {
		resource.Resource = "pods"
	}
	prefix := path.Join("/apis", kind.Group, kind.Version)
	if kind.Group == "" {
		prefix = "/api/v1"
	}
	if namespace != "" {
		prefix += "/namespaces/" + namespace
	}
	return prefix + "/" + resource.Resource
}

// put adds or replaces objects.
func (s *apiServer) put(objects ...client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		kind, err := apiutil.GVKForObject(o, kinds)
		utilruntime.Must(err)
		o.GetObjectKind().SetGroupVersionKind(kind)
		s.objects[pathOf(kind, o.GetNamespace())+"/"+o.GetName()] = o
	}
}

// putJSON is put of an object as JSON.
func (s *apiServer) putJSON(t *testing.T, text string) {
	t.Helper()
	object, _, err := serializer.NewCodecFactory(kinds).UniversalDeserializer().Decode([]byte(text), nil, nil)
	must.Succeed(t, err)
	s.put(object.(client.Object))
}

// forget deletes the objects whose paths begin so.
func (s *apiServer) forget(prefix string) {
	maps.DeleteFunc(s.objects, func(path string, _ client.Object) bool { return strings.HasPrefix(path, prefix) })
}

// edit changes a scaler of the namespace shop.
func (s *apiServer) edit(name string, change func(*v1beta1.VerticalScaler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.objects[ofShop+"/verticalscalers/"+name].(*v1beta1.VerticalScaler))
}

func (s *apiServer) answer(path string, with any) {
	s.answers[path] = func(*http.Request) any { return with }
}

func (s *apiServer) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// forbid refuses what begins with the paths.
func (s *apiServer) forbid(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden = paths
}

func failure(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code), Message: message}
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	result := s.resultOf(r)
	if status, ok := result.(metav1.Status); ok {
		w.WriteHeader(int(status.Code))
	}
	_ = json.NewEncoder(w).Encode(result)
}

func (s *apiServer) resultOf(r *http.Request) any {
	isBelow := func(path string) bool { return strings.HasPrefix(r.URL.Path, path) }
	answer, object := s.answers[r.URL.Path], s.objects[r.URL.Path]
	var list any
	if answer == nil && object == nil {
		list = s.list(r)
	}
	switch {
	case slices.ContainsFunc(s.forbidden, isBelow):
		return failure(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not")
	case answer == nil && object == nil && list == nil, strings.Contains(r.URL.Path, "/namespaces/elsewhere/"):
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	case r.Method == http.MethodPatch && s.conflicts > 0:
		s.conflicts--
		return failure(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
	}
	if answer != nil {
		return answer(r)
	}
	body, _ := io.ReadAll(r.Body)
	body = asJSON(body)
	if r.Method != http.MethodGet {
		s.written = append(s.written, r.Method+" "+r.URL.RequestURI()+" "+strings.TrimSpace(string(body)))
	}
	switch {
	case r.Method == http.MethodGet && object == nil:
		return list
	case r.Method == http.MethodGet, r.Method == http.MethodPatch:
		return object
	case s.refused != "" && isBelow(s.refused):
		return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.template is wrong")
	}
	var stored unstructured.Unstructured // what is written, as it would be stored
	utilruntime.Must(json.Unmarshal(body, &stored.Object))
	stored.SetUID("uid")
	stored.SetCreationTimestamp(metav1.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	return stored.Object
}

// asJSON is a body as JSON, which built-in kinds are not sent as.
func asJSON(body []byte) []byte {
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		return body
	}
	object, _, err := serializer.NewCodecFactory(kinds).UniversalDeserializer().Decode(body, nil, nil)
	utilruntime.Must(err)
	body, err = json.Marshal(object)
	utilruntime.Must(err)
	return body
}

// list is a page of a list; nil if the path is none of a list.
func (s *apiServer) list(r *http.Request) any {
	selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
	namespace := ""
	if _, rest, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		namespace, _, _ = strings.Cut(rest, "/")
	}
	served := maps.Clone(kinds.AllKnownTypes())
	items := []client.Object{}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[key]
		served[o.GetObjectKind().GroupVersionKind()] = nil
		if r.URL.Path == pathOf(o.GetObjectKind().GroupVersionKind(), namespace) && (namespace == "" || o.GetNamespace() == namespace) && selector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o)
		}
	}
	for kind := range served {
		if pathOf(kind, namespace) != r.URL.Path {
			continue
		}
		from, size, next := 0, s.pageSize, ""
		if kind.Kind == "PodMetrics" {
			size = 0 // metrics-server has no pages
		}
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from) // the first page has none
		if size > 0 && from+size < len(items) {
			next = fmt.Sprint(from + size)
			items = items[:from+size]
		}
		return map[string]any{
			"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": map[string]any{"continue": next}, "items": items[from:],
		}
	}
	return nil
}

// may reports whether users have the rights that are asked for, and the operator those that policies need.
func (s *apiServer) may(isAllowed bool) {
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: isAllowed}
	s.answer(reviews, authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}, Status: status})
	s.answer(accessReviews, authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}, Status: status})
}

// lastHeard sets the lease of the operator, which was renewed so long ago.
func (s *apiServer) lastHeard(before time.Duration) { s.lastHeardOf("", before) }

// lastHeardOf is lastHeard of an operator that tells its version, unless that is empty.
func (s *apiServer) lastHeardOf(version string, before time.Duration) {
	s.put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultOperatorNamespace, Name: v1beta1.LeaseName, Labels: map[string]string{v1beta1.VersionLabel: version}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("operator-0"), LeaseDurationSeconds: ptr.To[int32](30), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-before)}},
	})
}

// newAPIServer serves two scalers and a ScaledDeployment in namespace shop. One scaler has no Deployment. Deployment web runs
// the pods a and b; b has no usage.
func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := startServer(t)
	web := newScaler("shop", "web", metav1.Condition{Status: "True", Reason: "Applied", Message: "All pods have the decided size"})
	web.Status.Summary = &v1beta1.Summary{CPU: "230m", Memory: "480Mi", Pods: "2/2"}
	web.Status.Decision = &v1beta1.Decision{Reason: "ScaleDown", Containers: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: amounts("230m", "480Mi")}}}
	late := newScaler("shop", "late", metav1.Condition{Status: "Unknown", Reason: "DeploymentNotFound", Message: "Waiting"})
	late.Status.Conditions[0].Reason, late.Status.Conditions[0].Message = "DeploymentNotFound", "Waiting"
	owner := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late", Labels: map[string]string{"team": "shop"}}, Spec: v1beta1.ScaledDeploymentSpec{Scaling: &v1beta1.Scaling{}},
		Status: v1beta1.ScaledDeploymentStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "NotControlled", Message: "It is another's"}}},
	}
	a, stray, pending := newPod("shop", "a", "web", "230m", "480Mi", ""), newPod("shop", "stray", "web-other", "230m", "480Mi", ""), newPod("shop", "c", "web", "9", "480Mi", "")
	pending.Status.Phase = corev1.PodPending
	s.put(web, late, owner, newDeployment("shop", "web", 1, "500m", "1Gi", ""), a, newPod("shop", "b", "web", "230m", "480Mi", ""), pending, stray, newPod("other", "a", "web", "230m", "480Mi", ""),
		usageOf(a, "41m", "60Mi"), usageOf(stray, "41m", "60Mi"))
	for _, name := range release.AdmissionPolicyNames {
		s.put(
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{release.VersionLabel: "v0.1.0"}}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name}})
	}
	return s
}

func amounts(cpu, memory string) (a v1beta1.Amounts) {
	for text, to := range map[string]**resource.Quantity{cpu: &a.CPU, memory: &a.Memory} {
		if text != "" {
			*to = ptr.To(resource.MustParse(text))
		}
	}
	return a
}

// newScaler is a scaler of the Deployment with its name. It is Ready.
func newScaler(namespace, name string, applied metav1.Condition) *v1beta1.VerticalScaler {
	applied.Type = "Applied"
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"team": namespace}},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: name},
		Status:     v1beta1.VerticalScalerStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "OperatingNormally"}, applied}},
	}
}

// container is the container app. An empty limit is none.
func container(cpu, memory, limit string) []corev1.Container {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
	if limit != "" {
		r.Limits = corev1.ResourceList{"memory": resource.MustParse(limit)}
	}
	return []corev1.Container{{Name: "app", Resources: r}}
}

func newDeployment(namespace, name string, replicas int32, cpu, memory, limit string) *appsv1.Deployment {
	app := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name, "team": namespace}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: container(cpu, memory, limit)}},
		},
	}
}

// newPod is a running pod of a Deployment.
func newPod(namespace, name, deployment, cpu, memory, limit string) *corev1.Pod {
	const hash = "5d4f8b9c4"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{"pod-template-hash": hash, "app": deployment},
			OwnerReferences: []metav1.OwnerReference{controller("ReplicaSet", deployment+"-"+hash)},
		},
		Spec: corev1.PodSpec{Containers: container(cpu, memory, limit)}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func controller(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Name: name, Controller: ptr.To(true)}
}

// usageOf is the usage of a pod now.
func usageOf(p *corev1.Pod, cpu, memory string) client.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": map[string]any{"name": p.Name, "namespace": p.Namespace},
		"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "15s",
		"containers": []any{map[string]any{"name": "app", "usage": map[string]any{"cpu": cpu, "memory": memory}}},
	}}
}

// rolledBack makes web a scaler that was rolled back to the requests before its last decision.
func (s *apiServer) rolledBack(t *testing.T) {
	t.Helper()
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
		plan, err := rollback.Of(web, nil, rollback.Previous)
		must.Succeed(t, err)
		text, err := json.Marshal(rollback.Record{To: rollback.Previous, Before: rollback.SpecOf(web.Spec.Scaling), After: plan.Spec})
		must.Succeed(t, err)
		web.Annotations, web.Spec.ResourcePolicy = map[string]string{rollback.Annotation: string(text)}, plan.Spec.ResourcePolicy
	})
}

// vpas has three of them: web sizes a Deployment, db something else, odd has a field that is not known.
func vpas(s *apiServer) {
	for name, kind := range map[string]string{"web": "Deployment", "db": "StatefulSet", "odd": "Deployment"} {
		spec := map[string]any{"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name}, "updatePolicy": map[string]any{"updateMode": "InPlace"}}
		if name == "odd" {
			spec["later"] = true
		}
		s.put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": map[string]any{"namespace": "shop", "name": name}, "spec": spec,
		}})
	}
}

// adoptable is a cluster with Deployments in three namespaces, one scaler of a user, and no policy.
func adoptable(t *testing.T) *apiServer {
	t.Helper()
	s := startServer(t)
	s.put(newScaler("shop", "web", metav1.Condition{}), newScaler("shop", "late", metav1.Condition{}))
	for _, name := range [][2]string{{"shop", "api"}, {"shop", "web"}, {"kube-system", "dns"}, {"bank", "core"}} {
		d := newDeployment(name[0], name[1], 2, "500m", "1Gi", "")
		d.Labels, d.Status.Replicas = map[string]string{"tier": "web"}, 2
		s.put(d, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name[0], Labels: map[string]string{"kubernetes.io/metadata.name": name[0], "sizing": "auto"}}})
	}
	return s
}

// ofPolicy makes web a scaler of the ClusterScalingPolicy fleet, which is Ready as it is told. There is a ScalingPolicy of
// another name in the namespace, and a ClusterScalingPolicy that has created nothing there.
func (s *apiServer) ofPolicy(ready string) {
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.OwnerReferences = []metav1.OwnerReference{controller(v1beta1.ClusterScalingPolicyKind, "fleet")}
		web.Labels = map[string]string{v1beta1.PolicyLabel: "fleet"}
	})
	var rules v1beta1.PolicyRules
	rules.Rollout.Start, rules.Template.UpdatePolicy.UpdateMode = "Recommend", "InPlace"
	status := v1beta1.ScalingPolicyStatus{
		Selected: 2, Scaled: 1,
		Summary:    &v1beta1.PolicySummary{Deployments: "1/2", Promoted: "1/1"},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "OperatingNormally"}, {Type: "Promoting", Status: "True", Reason: "AllPromoted"}},
	}
	own := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}, Spec: v1beta1.ScalingPolicySpec{PolicyRules: rules}, Status: status}
	fleet := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: v1beta1.ClusterScalingPolicySpec{PolicyRules: rules}, Status: *status.DeepCopy()}
	other := fleet.DeepCopy()
	other.Name = "other"
	if ready == "False" {
		fleet.Status.Conditions[0].Status, fleet.Status.Conditions[0].Reason = metav1.ConditionFalse, "ScalersRejected"
	}
	s.put(own, fleet, other)
}
