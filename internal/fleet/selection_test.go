// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// created is the default creation time of the policies of these tests.
var created = metav1.NewTime(time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC))

func selects(key, value string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// aPolicy is a ScalingPolicy of namespace shop that selects all Deployments.
func aPolicy(t *testing.T, name string, changes ...func(*v1beta1.ScalingPolicy)) *Policy {
	t.Helper()
	p := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("shop/" + name), CreationTimestamp: created}}
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInPlace
	for _, change := range changes {
		change(p)
	}
	out, err := Read(p, "sizing")
	must.Succeed(t, err)
	return out
}

// aClusterPolicy selects all Deployments of the namespaces with the label env: live.
func aClusterPolicy(t *testing.T, name string, changes ...func(*v1beta1.ClusterScalingPolicy)) *Policy {
	t.Helper()
	p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: created}}
	p.Spec.NamespaceSelector = selects("env", "live")
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInPlace
	for _, change := range changes {
		change(p)
	}
	out, err := Read(p, "sizing")
	must.Succeed(t, err)
	return out
}

// The first of these policies that selects a Deployment sizes it, in any order of the list.
func TestTheFirstPolicyInOrderSizesADeployment(t *testing.T) {
	priority := func(n int32, age time.Duration) func(*v1beta1.ScalingPolicy) {
		return func(p *v1beta1.ScalingPolicy) {
			p.Spec.Priority, p.CreationTimestamp = n, metav1.NewTime(created.Add(-age))
		}
	}
	clusterPriority := func(n int32, age time.Duration) func(*v1beta1.ClusterScalingPolicy) {
		return func(p *v1beta1.ClusterScalingPolicy) {
			p.Spec.Priority, p.CreationTimestamp = n, metav1.NewTime(created.Add(-age))
		}
	}
	inOrder := []*Policy{
		aPolicy(t, "z-urgent", priority(1000, 0)),
		aPolicy(t, "z-old", priority(0, time.Hour)),
		aPolicy(t, "a", priority(0, 0)),
		aPolicy(t, "b", priority(0, 0)),
		aPolicy(t, "a-low", priority(-1000, 24*time.Hour)),
		aClusterPolicy(t, "z-cluster", clusterPriority(1000, 0)),
		aClusterPolicy(t, "b-cluster", clusterPriority(1, 48*time.Hour)),
		aClusterPolicy(t, "a-cluster", clusterPriority(1, 0)),
	}
	web, shop := &Deployment{Namespace: "shop", Name: "web"}, &Namespace{Name: "shop", Labels: map[string]string{"env": "live"}}
	if got := Choose(nil, web, shop); got != nil {
		t.Errorf("%s is chosen of no policies", got)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		first := random.IntN(len(inOrder))
		some := slices.Clone(inOrder[first:])
		random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		if got := Choose(some, web, shop); got != inOrder[first] {
			t.Fatalf("of %v, %s is chosen, want %s", some, got, inOrder[first])
		}
		if slices.SortFunc(some, Compare); !slices.Equal(some, inOrder[first:]) {
			t.Fatalf("in order: %v", some)
		}
	}
	// A policy that comes first and selects another Deployment, or excludes this one, does not matter.
	others := []*Policy{
		aPolicy(t, "elsewhere", priority(1000, 0), func(p *v1beta1.ScalingPolicy) { p.Namespace = "bank" }),
		aPolicy(t, "excludes", priority(1000, 0), func(p *v1beta1.ScalingPolicy) {
			p.Spec.Exclude = &v1beta1.DeploymentExclusions{Deployments: []string{"web"}}
		}),
		aPolicy(t, "other-labels", priority(1000, 0), func(p *v1beta1.ScalingPolicy) {
			p.Spec.DeploymentSelector = new(selects("tier", "back"))
		}),
	}
	if got := Choose(append(others, inOrder[6], inOrder[5]), web, shop); got != inOrder[5] {
		t.Errorf("%s is chosen, want %s", got, inOrder[5])
	}
}

func TestWhatAPolicyMatches(t *testing.T) {
	const matches, isMissed = "matches", "does not match"
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	namespaced := func(change func(*v1beta1.ScalingPolicy)) *Policy { return aPolicy(t, "p", change) }
	cluster := func(change func(*v1beta1.ClusterScalingPolicy)) *Policy { return aClusterPolicy(t, "p", change) }
	all, clusterwide := aPolicy(t, "all"), aClusterPolicy(t, "all")
	everywhere := cluster(func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.NamespaceSelector = *expression("kubernetes.io/metadata.name", metav1.LabelSelectorOpExists)
	})
	withSystem := cluster(func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.NamespaceSelector = *expression("kubernetes.io/metadata.name", metav1.LabelSelectorOpExists)
		p.Spec.SystemNamespaces = v1beta1.SystemNamespacesInclude
	})
	excluding := cluster(func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Exclude = &v1beta1.ClusterExclusions{
			Namespaces:           []string{"bank", "vault"},
			DeploymentExclusions: v1beta1.DeploymentExclusions{Deployments: []string{"legacy"}, DeploymentSelector: expression("batch", metav1.LabelSelectorOpExists)},
		}
	})
	shop := func(d Deployment) Deployment {
		d.Namespace = "shop"
		if d.Name == "" {
			d.Name = "web"
		}
		return d
	}
	in := func(namespace string) Deployment { return Deployment{Namespace: namespace, Name: "web"} }
	live := map[string]string{"env": "live"}
	for name, c := range map[string]struct {
		policy     *Policy
		deployment Deployment
		namespace  Namespace // the name is that of the Deployment's
		want       string
	}{
		"a Deployment of the namespace":         {all, shop(Deployment{}), Namespace{}, matches},
		"one of another namespace":              {all, in("bank"), Namespace{Labels: live}, isMissed},
		"a ScalingPolicy of a system namespace": {aPolicy(t, "p", func(p *v1beta1.ScalingPolicy) { p.Namespace = "kube-system" }), in("kube-system"), Namespace{}, matches},
		"a selected namespace":                  {clusterwide, in("bank"), Namespace{Labels: live}, matches},
		"a namespace with another label":        {clusterwide, in("bank"), Namespace{Labels: map[string]string{"env": "test"}}, isMissed},
		"a namespace without labels":            {clusterwide, in("bank"), Namespace{}, isMissed},
		"an empty namespaceSelector":            {cluster(func(p *v1beta1.ClusterScalingPolicy) { p.Spec.NamespaceSelector = metav1.LabelSelector{} }), in("bank"), Namespace{Labels: live}, isMissed},
		"an empty deploymentSelector":           {namespaced(func(p *v1beta1.ScalingPolicy) { p.Spec.DeploymentSelector = &metav1.LabelSelector{} }), shop(Deployment{Labels: live}), Namespace{}, isMissed},
		"an empty selector of exclusions": {namespaced(func(p *v1beta1.ScalingPolicy) {
			p.Spec.Exclude = &v1beta1.DeploymentExclusions{DeploymentSelector: &metav1.LabelSelector{}}
		}), shop(Deployment{Labels: live}), Namespace{}, matches},
		"empty exclusions": {namespaced(func(p *v1beta1.ScalingPolicy) { p.Spec.Exclude = &v1beta1.DeploymentExclusions{} }), shop(Deployment{}), Namespace{}, matches},
		"a selected label": {namespaced(func(p *v1beta1.ScalingPolicy) { p.Spec.DeploymentSelector = new(selects("tier", "front")) }), shop(Deployment{Labels: map[string]string{"tier": "front", "app": "web"}}), Namespace{}, matches},
		"another label":    {namespaced(func(p *v1beta1.ScalingPolicy) { p.Spec.DeploymentSelector = new(selects("tier", "front")) }), shop(Deployment{Labels: map[string]string{"tier": "back"}}), Namespace{}, isMissed},
		"a Deployment without labels, by NotIn": {namespaced(func(p *v1beta1.ScalingPolicy) {
			p.Spec.DeploymentSelector = expression("tier", metav1.LabelSelectorOpNotIn, "back")
		}), shop(Deployment{}), Namespace{}, matches},
		"the labels of the namespace, not of the Deployment": {clusterwide, Deployment{Namespace: "bank", Name: "web", Labels: live}, Namespace{}, isMissed},
		"an annotated Deployment":                            {all, shop(Deployment{Excluded: true}), Namespace{}, v1beta1.ReasonExcluded},
		"an annotated namespace":                             {all, shop(Deployment{}), Namespace{Excluded: true}, v1beta1.ReasonExcluded},
		"an annotated namespace of a cluster policy":         {clusterwide, in("bank"), Namespace{Labels: live, Excluded: true}, v1beta1.ReasonExcluded},
		"an excluded namespace":                              {excluding, in("vault"), Namespace{Labels: live}, v1beta1.ReasonExcluded},
		"an excluded name, in any namespace":                 {excluding, shop(Deployment{Name: "legacy"}), Namespace{Labels: live}, v1beta1.ReasonExcluded},
		"an excluded label":                                  {excluding, shop(Deployment{Labels: map[string]string{"batch": ""}}), Namespace{Labels: live}, v1beta1.ReasonExcluded},
		"a name that only begins like an excluded one":       {excluding, shop(Deployment{Name: "legacy-2"}), Namespace{Labels: live}, matches},
		"exclusions of a namespace that is not selected":     {excluding, in("vault"), Namespace{}, isMissed},
		"a Deployment of a ScaledDeployment":                 {all, shop(Deployment{IsOwned: true}), Namespace{}, v1beta1.ReasonScaledDeployment},
		"an annotated one of a ScaledDeployment":             {all, shop(Deployment{IsOwned: true, Excluded: true}), Namespace{}, v1beta1.ReasonExcluded},
		"a name of 63 characters":                            {all, shop(Deployment{Name: strings.Repeat("n", 63)}), Namespace{}, matches},
		"a name of 64 characters":                            {all, shop(Deployment{Name: strings.Repeat("n", 64)}), Namespace{}, v1beta1.ReasonNameTooLong},
		"one that is too large to be stored":                 {all, shop(Deployment{TooLarge: true}), Namespace{}, v1beta1.ReasonTooLarge},
		"kube-system":                                        {everywhere, in("kube-system"), named("kube-system"), v1beta1.ReasonSystemNamespace},
		"openshift":                                          {everywhere, in("openshift"), named("openshift"), v1beta1.ReasonSystemNamespace},
		"openshift-monitoring":                               {everywhere, in("openshift-monitoring"), named("openshift-monitoring"), v1beta1.ReasonSystemNamespace},
		"the operator's own namespace":                       {everywhere, in("sizing"), named("sizing"), v1beta1.ReasonSystemNamespace},
		"a name that only resembles a system namespace":      {everywhere, in("openshifter"), named("openshifter"), matches},
		"kubernetes is no prefix of a system namespace":      {everywhere, in("kubernetes-apps"), named("kubernetes-apps"), matches},
		"default": {everywhere, in("default"), named("default"), matches},
		"a system namespace that is not selected":       {clusterwide, in("kube-system"), named("kube-system"), isMissed},
		"system namespaces are included":                {withSystem, in("kube-system"), named("kube-system"), matches},
		"the own namespace is included with them":       {withSystem, in("sizing"), named("sizing"), matches},
		"an annotation in an included system namespace": {withSystem, Deployment{Namespace: "kube-system", Name: "dns", Excluded: true}, named("kube-system"), v1beta1.ReasonExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			c.namespace.Name = c.deployment.Namespace
			ok, skipped := c.policy.Match(&c.deployment, &c.namespace)
			got := skipped
			switch {
			case !ok && skipped != "":
				t.Errorf("what does not match is skipped: %s", skipped)
			case !ok:
				got = isMissed
			case skipped == "":
				got = matches
			}
			if got != c.want {
				t.Errorf("Match() = %s, want %s", got, c.want)
			}
		})
	}
}

// named is a namespace with the label that each has.
func named(name string) Namespace {
	return Namespace{Labels: map[string]string{"kubernetes.io/metadata.name": name}}
}

func TestAnnotationsThatAreSet(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "": true, "no": true, "False": true, " false": true, "ask team web": true, "false": false} {
		exclude := map[string]string{v1beta1.ExcludeAnnotation: value, "other": "x"}
		detach := map[string]string{v1beta1.DetachedAnnotation: value}
		policy := aPolicy(t, "p", func(p *v1beta1.ScalingPolicy) { p.Annotations = map[string]string{v1beta1.PausedAnnotation: value} })
		if IsExcluded(exclude) != want || IsDetached(detach) != want || policy.IsPaused() != want {
			t.Errorf("with %q: excluded %t, detached %t, paused %t, want %t", value, IsExcluded(exclude), IsDetached(detach), policy.IsPaused(), want)
		}
		if IsExcluded(detach) || IsDetached(exclude) {
			t.Error("one annotation is taken for the other")
		}
	}
	if aPolicy(t, "p").IsPaused() || IsExcluded(nil) || IsDetached(nil) {
		t.Error("an annotation that is not there is set")
	}
}

func TestASelectorThatCannotBeParsedIsNamed(t *testing.T) {
	broken := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like", Values: []string{"f*"}}}}
	withoutValues := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn}}}
	for want, change := range map[string]func(*v1beta1.ClusterScalingPolicy){
		`spec.namespaceSelector: "Like" is not a valid label selector operator`: func(p *v1beta1.ClusterScalingPolicy) { p.Spec.NamespaceSelector = broken },
		`spec.deploymentSelector: "Like" is not a valid label selector operator`: func(p *v1beta1.ClusterScalingPolicy) {
			p.Spec.DeploymentSelector = &broken
		},
		`spec.exclude.deploymentSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty`: func(p *v1beta1.ClusterScalingPolicy) {
			p.Spec.Exclude = &v1beta1.ClusterExclusions{DeploymentExclusions: v1beta1.DeploymentExclusions{DeploymentSelector: &withoutValues}}
		},
	} {
		p := &v1beta1.ClusterScalingPolicy{}
		p.Spec.NamespaceSelector = selects("env", "live")
		change(p)
		if policy, err := Read(p, ""); err == nil || err.Error() != want || policy != nil {
			t.Errorf("Read() = %v, %v, want no policy and %s", policy, err, want)
		}
	}
	namespaced := &v1beta1.ScalingPolicy{}
	namespaced.Spec.DeploymentSelector = &broken
	if policy, err := Read(namespaced, ""); err == nil || policy != nil {
		t.Errorf("Read() = %v, %v, want no policy", policy, err)
	}
}

func TestAPolicyIsNamedWithItsKind(t *testing.T) {
	if got := aPolicy(t, "web").String() + ", " + aClusterPolicy(t, "fleet").String(); got != "ScalingPolicy shop/web, ClusterScalingPolicy fleet" {
		t.Error(got)
	}
	if got := aClusterPolicy(t, "fleet").Key(); got.Namespace != "" || got.Name != "fleet" {
		t.Errorf("key %v", got)
	}
}
