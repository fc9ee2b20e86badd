// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package preview_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/adopt/preview"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// everywhere selects the Deployments with tier=web of all namespaces.
func everywhere(change func(*v1beta1.ClusterScalingPolicySpec)) *v1beta1.ClusterScalingPolicy {
	p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", UID: "fleet"}}
	p.Spec.NamespaceSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: "Exists"}}}
	p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	p.Spec.SystemNamespaces = v1beta1.SystemNamespacesExclude
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInPlace
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func read(t *testing.T, p *v1beta1.ClusterScalingPolicy) (w preview.Input) {
	t.Helper()
	parsed, err := fleet.Read(p, "verticalscaler-system")
	must.Succeed(t, err)
	return preview.Input{Policy: parsed, Described: explain.PolicyOf(p), Namespaces: map[string]*fleet.Namespace{}}
}

// deploy adds Deployments with so many pods of 500m and 1 GiB, and a sidecar without a request.
func deploy(w *preview.Input, pods int32, namespace string, names ...string) []*fleet.Deployment {
	if w.Namespaces[namespace] == nil {
		w.Namespaces[namespace] = &fleet.Namespace{Name: namespace, Labels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	}
	from := len(w.Deployments)
	for _, name := range names {
		w.Deployments = append(w.Deployments, &fleet.Deployment{
			Namespace: namespace, Name: name, Labels: map[string]string{"tier": "web"}, Replicas: pods,
			Requests: map[string]quantity.Amounts{"app": {CPUMillis: 500, MemoryBytes: 1 << 30}, "proxy": {}},
		})
	}
	return w.Deployments[from:]
}

// scaler adds a scaler, which a policy has created, unless that is nil. It recommends 200m for app if it recommends.
func scaler(w *preview.Input, namespace, name, deployment string, by *fleet.Policy, recommends bool) *v1beta1.VerticalScaler {
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: deployment}}
	if by != nil {
		s = by.Desired(s)
	}
	if recommends {
		s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{
			{ContainerName: "gone", Target: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("9"))}},
			{ContainerName: "app", Target: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("200m"))}},
		}}
	}
	w.Scalers = append(w.Scalers, *s)
	return &w.Scalers[len(w.Scalers)-1]
}

// untidy is a cluster with everything that a policy may meet.
func untidy(t *testing.T) preview.Input {
	t.Helper()
	w := read(t, everywhere(func(s *v1beta1.ClusterScalingPolicySpec) {
		s.Exclude = &v1beta1.ClusterExclusions{Namespaces: []string{"lab"}, DeploymentExclusions: v1beta1.DeploymentExclusions{Deployments: []string{"ledger"}}}
		s.Rollout.MaxConcurrentPercent = ptr.To[int32](10)
	}))
	w.Exists = true
	tenant := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "own", UID: "own"}}
	tenant.Spec.DeploymentSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"own": "yes"}}
	own, err := fleet.Read(tenant, "")
	must.Succeed(t, err)
	old := everywhere(func(s *v1beta1.ClusterScalingPolicySpec) { s.Priority = -1 })
	old.Name, old.UID = "old", "old"
	before, err := fleet.Read(old, "")
	must.Succeed(t, err)
	w.Others = []*fleet.Policy{own, before}

	deploy(&w, 3, "shop", "web", "api", "cart", "by-hand", "named", "ledger", "idle", strings.Repeat("n", 64))
	w.Deployments[6].Replicas = 0
	deploy(&w, 1, "shop", "batch")[0].Labels = map[string]string{"tier": "batch"}
	deploy(&w, 1, "shop", "owned")[0].IsOwned = true
	deploy(&w, 1, "shop", "opted-out")[0].Excluded = true
	deploy(&w, 2, "bank", "own-1", "own-2", "core")
	w.Deployments[11].Labels, w.Deployments[12].Labels = map[string]string{"tier": "web", "own": "yes"}, map[string]string{"tier": "web", "own": "yes"}
	deploy(&w, 1, "kube-system", "dns")
	deploy(&w, 1, "verticalscaler-system", "operator")
	deploy(&w, 1, "lab", "a", "b")
	deploy(&w, 1, "quiet", "c")
	w.Namespaces["quiet"].Excluded = true
	for i := range 12 {
		deploy(&w, 1, fmt.Sprintf("team-%02d", i), "one")
	}

	scaler(&w, "shop", "web", "web", w.Policy, true)                                             // up to date
	scaler(&w, "shop", "api", "api", w.Policy, false).Spec.Suspend = true                        // of an earlier template
	scaler(&w, "shop", "cart", "cart", before, true)                                             // of another policy
	scaler(&w, "shop", "mine", "by-hand", nil, true)                                             // of a user
	scaler(&w, "shop", "named", "elsewhere", nil, false)                                         // has the name of another Deployment
	scaler(&w, "shop", "batch", "batch", w.Policy, false)                                        // is selected by nobody
	scaler(&w, "bank", "own-1", "own-1", w.Policy, false)                                        // is about to be taken over
	scaler(&w, "team-00", "one", "one", w.Policy, false).Status = v1beta1.VerticalScalerStatus{} // recommends nothing
	w.Missing = []string{"What may not be read: forbidden\x1b[31m"}
	return w
}

// The preview of a policy is text that a person can review.
func TestPreview(t *testing.T) {
	one := read(t, everywhere(func(s *v1beta1.ClusterScalingPolicySpec) {
		s.DeploymentSelector, s.Rollout.Start, s.Rollout.AfterSeconds = nil, v1beta1.UpdateModeInitial, ptr.To[int32](60)
	}))
	deploy(&one, 1, "shop", "web")
	deploy(&one, 1, "kube-system", "dns")
	nothing := read(t, everywhere(func(s *v1beta1.ClusterScalingPolicySpec) {
		s.Template.UpdatePolicy.UpdateMode, s.SystemNamespaces, s.DeploymentSelector = v1beta1.UpdateModeRecommend, v1beta1.SystemNamespacesInclude, nil
	}))
	same := read(t, everywhere(nil))
	same.Exists, same.IsSame = true, true
	deploy(&same, 1, "shop", "web")
	scaler(&same, "shop", "web", "web", same.Policy, false)
	for name, w := range map[string]preview.Input{"untidy": untidy(t), "all": one, "nothing": nothing, "same": same} {
		got := preview.Of(w)
		golden.Compare(t, name+".txt", got.Text()+strings.Join(append([]string{"\nWarnings"}, got.Warnings...), "\n")+"\n")
	}
}

// The order in which the API server lists objects does not matter.
func TestThePreviewDoesNotDependOnTheOrder(t *testing.T) {
	w := untidy(t)
	want := preview.Of(w).Text()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(w.Deployments), func(i, j int) { w.Deployments[i], w.Deployments[j] = w.Deployments[j], w.Deployments[i] })
		random.Shuffle(len(w.Scalers), func(i, j int) { w.Scalers[i], w.Scalers[j] = w.Scalers[j], w.Scalers[i] })
		slices.Reverse(w.Others)
		if diff := cmp.Diff(want, preview.Of(w).Text()); diff != "" {
			t.Fatalf("another order (-before +after):\n%s", diff)
		}
	}
}

// The text of a preview is short however large the fleet is, and its sums do not overflow.
func TestConflictsWithHPAsAreShown(t *testing.T) {
	w := read(t, everywhere(func(s *v1beta1.ClusterScalingPolicySpec) {
		s.Template.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "*", ControlledResources: []v1beta1.ControlledResource{"cpu"}}}}
	}))
	w.Averages = map[types.NamespacedName][]workload.Average{}
	for _, d := range deploy(&w, 1, "shop", "a", "b", "c", "d") {
		w.Averages[d.Key()] = []workload.Average{{Resource: "cpu", Advice: "patch " + d.Name}, {Resource: "memory", Advice: "no"}}
	}
	deploy(&w, 1, "shop", "batch")[0].Labels = nil // which the policy does not select
	w.Averages[w.Deployments[4].Key()] = w.Averages[w.Deployments[0].Key()]
	got := strings.Join(preview.Of(w).Warnings, "\n")
	assert.Contains(t, "preview", got, "shop/a by its requests", "apply: patch c\n", "1 more metrics")
	if strings.Contains(got, "apply: no") {
		t.Errorf("memory is not managed:\n%s", got)
	}
}

func TestThePreviewOfALargeFleetIsShort(t *testing.T) {
	w := read(t, everywhere(nil))
	for i := range 200 {
		for j := range 10 {
			d := deploy(&w, math.MaxInt32, fmt.Sprintf("ns-%03d", i), fmt.Sprintf("d-%d", j))[0]
			d.Requests["app"] = quantity.Amounts{CPUMillis: 1 << 40, MemoryBytes: 1 << 60}
			d.Excluded = j == 3
		}
	}
	got := preview.Of(w)
	if lines := strings.Count(got.Text(), "\n"); lines > 40 || got.FirstDay.Created != 1800 || got.Later.AtOnce != 90 {
		t.Errorf("%d lines, %+v, %+v", lines, got.FirstDay, got.Later)
	}
	if requested := got.Namespaces[0].Requested; requested.Cores <= 0 || requested.GiB <= 0 {
		t.Errorf("requested: %+v", requested)
	}
}

// docs/plugin.md shows the preview of a small fleet.
func TestThePageShowsAPreview(t *testing.T) {
	w := read(t, everywhere(func(s *v1beta1.ClusterScalingPolicySpec) {
		s.NamespaceSelector, s.DeploymentSelector = metav1.LabelSelector{MatchLabels: map[string]string{"sizing": "auto"}}, nil
	}))
	for namespace, names := range map[string]string{"bank": "core ledger", "shop": "api cart checkout web", "lab": "old"} {
		for i, d := range deploy(&w, 3, namespace, strings.Fields(names)...) {
			d.Excluded = namespace == "lab" && i == 0
		}
		w.Namespaces[namespace].Labels["sizing"] = "auto"
	}
	scaler(&w, "shop", "web", "web", nil, false)
	page, err := os.ReadFile("../../../../../docs/plugin.md")
	must.Succeed(t, err)
	if shown := explain.Wrap(preview.Of(w).Text(), 110); !strings.Contains(string(page), "```\n"+shown+"```\n") {
		t.Errorf("docs/plugin.md does not show\n%s", shown)
	}
}
