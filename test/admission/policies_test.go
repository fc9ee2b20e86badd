// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// policyFrom is a ScalingPolicy or ClusterScalingPolicy with a spec in YAML.
func policyFrom(t *testing.T, spec string) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{}
	must.Succeed(t, yaml.Unmarshal([]byte(spec), &content))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "metadata": map[string]any{"name": "fleet"}, "spec": content,
	}}
}

// modes is the spec of a policy with a mode to start in and one of the template; "" for none.
func modes(start, template string) string {
	return fmt.Sprintf("{deploymentSelector: {matchLabels: {a: b}}, rollout: {start: %s}, template: {updatePolicy: {updateMode: %s}}}", start, template)
}

// The author of a policy needs all the rights that the operator uses for it, in the namespace or in all namespaces.
func TestAuthorsOfPoliciesNeedTheRightsThatTheyUse(t *testing.T) {
	t.Parallel()
	p := compiled(t, "users_policies.yaml")
	scalers := may{"create verticalscalers", "update verticalscalers", "delete verticalscalers", "patch deployments"}
	all := append(slices.Clone(scalers), "patch pods/resize")
	labelled := func(o *unstructured.Unstructured) runtime.Object {
		o.SetLabels(map[string]string{"a": "b"})
		o.SetFinalizers([]string{"example.com/a"})
		o.SetAnnotations(map[string]string{"autoscaling.verticalscaler.io/paused": ""})
		return o
	}
	for name, c := range map[string]struct {
		before, after runtime.Object
		needs         may // all of them, and no others
	}{
		"recommending":                     {after: policyFrom(t, modes("Recommend", "Recommend")), needs: scalers},
		"rolling out":                      {after: policyFrom(t, modes("Recommend", "Rollout")), needs: scalers},
		"new pods":                         {after: policyFrom(t, modes("Initial", "Initial")), needs: scalers},
		"resizing pods after a promotion":  {after: policyFrom(t, modes("Recommend", "InPlace")), needs: all},
		"resizing pods at the start":       {after: policyFrom(t, modes("InPlace", "Rollout")), needs: all},
		"the default mode of the template": {after: policyFrom(t, "{rollout: {start: Recommend}, template: {}}"), needs: all},
		"a mode of the future":             {after: policyFrom(t, modes("Recommend", "Future")), needs: all},
		"a start of the future":            {after: policyFrom(t, modes("Future", "Recommend")), needs: all},
		"nothing but a selector":           {after: policyFrom(t, "{deploymentSelector: {matchLabels: {a: b}}}"), needs: all},
		"a suspended template":             {after: policyFrom(t, "{rollout: {start: InPlace}, template: {suspend: true}}"), needs: scalers},
		"resuming":                         {before: policyFrom(t, "{template: {suspend: true}}"), after: policyFrom(t, "{template: {suspend: false}}"), needs: all},
		"suspending":                       {before: policyFrom(t, "{template: {}}"), after: policyFrom(t, "{template: {suspend: true}}"), needs: scalers},
		"only recommending":                {before: policyFrom(t, modes("Recommend", "InPlace")), after: policyFrom(t, modes("Recommend", "Recommend")), needs: scalers},
		"promoting sooner":                 {before: policyFrom(t, "{rollout: {start: Recommend}}"), after: policyFrom(t, "{rollout: {start: Recommend, afterSeconds: 0}}"), needs: all},
		"another priority":                 {before: policyFrom(t, modes("Recommend", "Rollout")), after: policyFrom(t, modes("Recommend", "Rollout")[:1]+"priority: 5, "+modes("Recommend", "Rollout")[1:]), needs: scalers},
		"labelling, pausing":               {before: policyFrom(t, modes("InPlace", "InPlace")), after: labelled(policyFrom(t, modes("InPlace", "InPlace")))},
	} {
		for _, kind := range []string{"scalingpolicies", "clusterscalingpolicies"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				needs, less := slices.Clone(c.needs), may{"get deployments", "patch deployments/web", "update pods/resize", "patch verticalscalers"}
				end, place := "", ` in the namespace "shop"`
				if kind == "clusterscalingpolicies" {
					end, place = " everywhere", " at the cluster scope"
					less = append(less, all...) // those in one namespace
				}
				for i := range needs {
					needs[i] += end
				}
				r := request{user: "dev", resource: kind, before: c.before, after: c.after, may: needs}
				if looks, refuses := p.asks(t, r); looks != (len(needs) > 0) || len(refuses) > 0 {
					t.Errorf("with %q, looked at: %t, refused by %v", needs, looks, refuses)
				}
				for i, missing := range c.needs {
					verb, resource, _ := strings.Cut(missing, " ")
					r.may = slices.Concat(less, needs[:i], needs[i+1:])
					judge(t, p, r, fmt.Sprintf(`user "dev" cannot %s resource %q in API group`, verb, resource))
					judge(t, p, r, place)
				}
			})
		}
	}
}

// tenantAccount is a service account of a tenant that has the operator's name.
const tenantAccount = "system:serviceaccount:shop:verticalscaler-operator"

// The author of a policy has been checked, so the operator is not. No other account can skip the check by naming an owner
// in the scaler.
func TestOnlyTheOperatorIsNotAskedForTheRightsOfAPolicy(t *testing.T) {
	t.Parallel()
	p := compiled(t, "users.yaml")
	const status = "update verticalscalers/status"
	inPlace := inMode(v1beta1.UpdateModeInPlace)
	for _, kind := range []string{v1beta1.ScalingPolicyKind, v1beta1.ClusterScalingPolicyKind} {
		generated := ofPolicy(kind, inPlace)
		ofUser := objects.Scaler("shop", "web", "web")
		for name, c := range map[string]struct {
			user          string
			may           may
			before, after *v1beta1.VerticalScaler
			passes        bool
		}{
			"creating":               {operator, may{status}, nil, generated, true},
			"promoting":              {operator, may{status}, ofPolicy(kind), generated, true},
			"reverting an edit":      {operator, may{status}, ofPolicy(kind, targeting("api")), generated, true},
			"giving it to another":   {operator, may{status}, ofPolicy(kind), ofPolicy(kind, inPlace, given(v1beta1.ScalingPolicyKind, "other", "2")), true},
			"creating one of a user": {operator, may{status}, nil, ofUser, false},
			"creating one that a ScaledDeployment controls":         {operator, may{status}, nil, ofPolicy(kind, inPlace, given("ScaledDeployment", "web", "3")), false},
			"creating one that no policy controls":                  {operator, may{status}, nil, ofPolicy(kind, inPlace, func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }), false},
			"creating one of another group":                         {operator, may{status}, nil, ofPolicy(kind, inPlace, func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].APIVersion = "example.com/v1" }), false},
			"taking one from a user":                                {operator, may{status}, objects.Scaler("shop", "web", "api"), generated, false},
			"leaving one to a user, changed":                        {operator, may{status}, ofPolicy(kind), ofPolicy(kind, inPlace, released), false},
			"a user":                                                {"dev", nil, nil, generated, false},
			"a user who writes the status":                          {"dev", may{status}, ofPolicy(kind), generated, false},
			"an account of a tenant with the operator's name":       {tenantAccount, nil, nil, generated, false},
			"the same, which may write scalers":                     {tenantAccount, may{"update verticalscalers", "patch verticalscalers/status"}, ofPolicy(kind), generated, false},
			"an account with a name that ends like that":            {"system:serviceaccount:shop:my-verticalscaler-operator", may{status}, nil, generated, false},
			"a user with the right to patch Deployments and resize": {"dev", may{"patch deployments/web", "patch pods/resize"}, nil, generated, true},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				r := request{user: c.user, resource: "verticalscalers", after: mapsOf(t, c.after), may: c.may}
				if c.before != nil {
					r.before = mapsOf(t, c.before)
				}
				_, refuses := p.asks(t, r)
				if passes := len(refuses) == 0; passes != c.passes {
					t.Errorf("it passes: %t", passes)
				}
			})
		}
	}
}

// Checkpoints, the sizes of new pods, and the notes of a promotion cannot be forged, changed or hidden.
func TestNoOtherAccountForgesWhatTheOperatorWrites(t *testing.T) {
	t.Parallel()
	s := func(changes ...func(*v1beta1.VerticalScaler)) runtime.Object {
		return mapsOf(t, ofPolicy(v1beta1.ScalingPolicyKind, changes...))
	}
	promoted, harmed := noted(v1beta1.PromotedAnnotation, "2026-01-01T00:00:00Z"), noted(v1beta1.HarmedAnnotation, "2026-01-02T00:00:00Z")
	metadata := metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: []metav1.OwnerReference{{Kind: "VerticalScaler", Name: "web", UID: "1"}}}
	labelled, orphaned, adopted := *metadata.DeepCopy(), *metadata.DeepCopy(), *metadata.DeepCopy()
	labelled.Labels, labelled.Finalizers = map[string]string{"a": "b"}, []string{"foregroundDeletion"}
	orphaned.OwnerReferences = nil
	adopted.OwnerReferences = append(adopted.OwnerReferences, metav1.OwnerReference{Kind: "VerticalScaler", Name: "api", UID: "2"})
	checkpoint := func(m metav1.ObjectMeta, deployment string) runtime.Object {
		return mapsOf(t, &v1beta1.VerticalScalerCheckpoint{ObjectMeta: m, Spec: v1beta1.VerticalScalerCheckpointSpec{DeploymentName: deployment}})
	}
	sizes := func(m metav1.ObjectMeta, text string) runtime.Object {
		return mapsOf(t, &v1beta1.NewPodSizes{ObjectMeta: m, Spec: v1beta1.NewPodSizesSpec{Deployments: text}})
	}
	type change struct {
		before, after runtime.Object // nil for none
		says          string         // to all but the operator and an administrator; empty if nobody is refused
	}
	const notes, learned, sized = "Only the operator sets, changes and removes", "checkpoint", "sizes of new pods"
	for resource, changes := range map[string]map[string]change{
		"verticalscalers": {
			"creating one":                        {nil, s(), ""},
			"creating one that is promoted":       {nil, s(promoted), notes},
			"creating one that did harm":          {nil, mapsOf(t, testkitScaler(harmed)), notes},
			"creating one with other notes":       {nil, s(noted("autoscaling.verticalscaler.io/paused", "")), ""},
			"promoting":                           {s(), s(promoted), notes},
			"promoting without a time":            {s(), s(noted(v1beta1.PromotedAnnotation, "")), notes},
			"forging harm":                        {s(promoted), s(promoted, harmed), notes},
			"hiding harm":                         {s(promoted, harmed), s(promoted), notes},
			"hiding all":                          {s(promoted, harmed), s(), notes},
			"another time":                        {s(promoted), s(noted(v1beta1.PromotedAnnotation, "2020-01-01T00:00:00Z")), notes},
			"promoting one of a user":             {mapsOf(t, testkitScaler()), mapsOf(t, testkitScaler(promoted)), notes},
			"detaching":                           {s(promoted, harmed), s(promoted, harmed, noted(v1beta1.DetachedAnnotation, "")), ""},
			"editing":                             {s(promoted), s(promoted, inMode(v1beta1.UpdateModeInPlace)), ""},
			"what the garbage collector does":     {s(promoted, ownedToo), s(promoted), ""},
			"removing a finalizer":                {s(promoted, finalizedBy(own)), s(promoted), ""},
			"one that has none, in another shape": {s(noted("a", "b")), s(), ""},
		},
		"verticalscalercheckpoints": {
			"creating one":                  {nil, checkpoint(metadata, "web"), learned},
			"changing what was learned":     {checkpoint(metadata, "web"), checkpoint(metadata, "api"), learned},
			"changing whose it is":          {checkpoint(metadata, "web"), checkpoint(adopted, "web"), learned},
			"labelling one":                 {checkpoint(metadata, "web"), checkpoint(labelled, "web"), ""},
			"removing its owner":            {checkpoint(metadata, "web"), checkpoint(orphaned, "web"), ""},
			"storing it in another version": {checkpoint(metadata, "web"), checkpoint(metadata, "web"), ""},
		},
		"newpodsizes": {
			"creating one":  {nil, sizes(metadata, "9"), sized},
			"changing one":  {sizes(metadata, "1"), sizes(metadata, "9"), sized},
			"labelling one": {sizes(metadata, "1"), sizes(labelled, "1"), ""},
		},
	} {
		file, name := "checkpoints.yaml", "verticalscaler-checkpoints"
		if resource == "verticalscalers" {
			file, name = "promotions.yaml", "verticalscaler-promotions"
		}
		p := compiled(t, file)
		const status = "update verticalscalers/status"
		for what, c := range changes {
			for _, who := range []struct {
				user   string
				may    may
				passes bool
			}{
				{"dev", may{status, "patch deployments", "patch pods/resize"}, false},
				{"system:serviceaccount:kube-system:generic-garbage-collector", nil, false},
				{tenantAccount, may{"update verticalscalers"}, false},
				{operator, may{status}, true},
				{"admin", may{"delete validatingadmissionpolicies/" + name}, true},
			} {
				_, _, says := p.answers(t, request{user: who.user, resource: resource, before: c.before, after: c.after, may: who.may})
				said := strings.Join(says, "; ")
				if refused := said != ""; refused != (c.says != "" && !who.passes) || refused && !strings.Contains(said, c.says) {
					t.Errorf("%s, %s: %s is refused by %q", resource, what, who.user, said)
				}
			}
		}
	}
}

// testkitScaler is a scaler of a user.
func testkitScaler(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := objects.Scaler("shop", "web", "web")
	for _, change := range changes {
		change(s)
	}
	return s
}

// Users are warned once about the selection and the start of a policy, and about its bounds.
func TestWarningsAboutPolicies(t *testing.T) {
	t.Parallel()
	p := compiled(t, "warnings.yaml")
	const (
		everything  = `{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}%s}`
		all         = "This policy selects all Deployments of all namespaces, except system namespaces. See what it would do with: kubectl vscaler adopt"
		bounds      = `template: {resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 400}}]}}`
		implausible = "Implausible bounds: minAllowed.cpu 400 of container app. CPU is in cores: 500m is half a core"
	)
	selecting := func(namespaces string, more ...string) string {
		return "{namespaceSelector: {" + namespaces + "}" + strings.Join(append([]string{""}, more...), ", ") + "}"
	}
	alsoOne := "rollout.start is the updateMode of the template, %s: all scalers %s. To promote them a few at a time, set rollout.start to Recommend"
	resizing := fmt.Sprintf(alsoOne, "InPlace", "change pods at once, within the change budget")
	for name, c := range map[string]struct {
		before, after string // specs; none for no object
		says          []string
		cluster       bool // only ClusterScalingPolicies are warned about
	}{
		"some Deployments":                     {after: modes("Recommend", "InPlace")},
		"some namespaces":                      {after: selecting("matchLabels: {team: shop}")},
		"some namespaces of all":               {after: selecting("matchLabels: {team: shop}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]")},
		"namespaces with a label":              {after: selecting("matchExpressions: [{key: team, operator: Exists}]")},
		"namespaces by name":                   {after: selecting("matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [a]}]")},
		"namespaces by name, without some":     {after: selecting("matchExpressions: [{key: team, operator: In, values: [a]}, {key: stage, operator: NotIn, values: [b]}]")},
		"all":                                  {after: fmt.Sprintf(everything, ""), says: []string{all}, cluster: true},
		"all, in Recommend":                    {after: fmt.Sprintf(everything, ", "+modes("Recommend", "Recommend")[len("{deploymentSelector: {matchLabels: {a: b}}, "):len(modes("Recommend", "Recommend"))-1]), says: []string{all}, cluster: true},
		"some Deployments of all":              {after: fmt.Sprintf(everything, ", deploymentSelector: {matchLabels: {a: b}}")},
		"all, with system namespaces":          {after: fmt.Sprintf(everything, ", systemNamespaces: Include"), says: []string{"of all namespaces, with system namespaces. See"}, cluster: true},
		"all but some, by values":              {after: selecting("matchExpressions: [{key: stage, operator: NotIn, values: [prod]}]"), says: []string{"of all namespaces that matchExpressions do not exclude, except system namespaces."}, cluster: true},
		"all but some, by labels":              {after: selecting("matchExpressions: [{key: quiet, operator: DoesNotExist}, {key: kubernetes.io/metadata.name, operator: Exists}]"), says: []string{"that matchExpressions do not exclude"}, cluster: true},
		"all as before":                        {before: fmt.Sprintf(everything, ""), after: fmt.Sprintf(everything, ", priority: 5")},
		"all, where it was some":               {before: fmt.Sprintf(everything, ", deploymentSelector: {matchLabels: {a: b}}"), after: fmt.Sprintf(everything, ""), says: []string{all}, cluster: true},
		"all, now with system namespaces":      {before: fmt.Sprintf(everything, ""), after: fmt.Sprintf(everything, ", systemNamespaces: Include"), says: []string{"with system namespaces"}, cluster: true},
		"resizing at once":                     {after: modes("InPlace", "InPlace"), says: []string{resizing}},
		"resizing at once, by default":         {after: selecting("matchLabels: {a: b}", "rollout: {start: InPlace}"), says: []string{resizing}},
		"rolling out at once":                  {after: modes("Rollout", "Rollout"), says: []string{fmt.Sprintf(alsoOne, "Rollout", "change pods at once, within the change budget")}},
		"new pods at once":                     {after: modes("Initial", "Initial"), says: []string{fmt.Sprintf(alsoOne, "Initial", "size new pods at once")}},
		"new pods before the others":           {after: modes("Initial", "InPlace")},
		"only recommending":                    {after: modes("Recommend", "Recommend")},
		"resizing at once, suspended":          {after: selecting("matchLabels: {a: b}", "rollout: {start: InPlace}", "template: {suspend: true}")},
		"resizing at once, not suspended":      {before: selecting("matchLabels: {a: b}", "rollout: {start: InPlace}", "template: {suspend: true}"), after: selecting("matchLabels: {a: b}", "rollout: {start: InPlace}"), says: []string{resizing}},
		"resizing at once, as before":          {before: modes("InPlace", "InPlace"), after: strings.Replace(modes("InPlace", "InPlace"), "{a: b}", "{a: c}", 1)},
		"cores for millicores":                 {after: selecting("matchLabels: {a: b}", bounds), says: []string{implausible}},
		"cores for millicores, as before":      {before: selecting("matchLabels: {a: b}", bounds), after: selecting("matchLabels: {a: c}", bounds)},
		"containers that few Deployments have": {after: selecting("matchLabels: {a: b}", `template: {resourcePolicy: {containerPolicies: [{containerName: proxy, controlledValues: RequestsOnly}]}}`)},
		"all of it":                            {after: fmt.Sprintf(everything, ", rollout: {start: InPlace}, "+bounds), says: []string{implausible, all, resizing}, cluster: true},
	} {
		for _, kind := range []string{"scalingpolicies", "clusterscalingpolicies"} {
			if c.cluster && kind == "scalingpolicies" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				r := request{resource: kind, after: policyFrom(t, c.after)}
				if c.before != "" {
					r.before = policyFrom(t, c.before)
				}
				got := warned(t, []*policy{p}, r)
				if len(got) != len(c.says) {
					t.Fatalf("got %q, want %q", got, c.says)
				}
				for i, words := range c.says {
					if !strings.Contains(got[i], words) {
						t.Errorf("got %q, want %q", got[i], words)
					}
				}
			})
		}
	}
}

// The longest selectors and templates are evaluated within the API server's budget.
func TestTheLargestPoliciesAreWithinTheBudget(t *testing.T) {
	t.Parallel()
	var policies, expressions []any
	for i := range 32 { // the most that the CRD allows
		policies = append(policies, map[string]any{
			"containerName": fmt.Sprintf("container-with-a-name-of-sixty-three-characters-%015d", i),
			"minAllowed":    map[string]any{"cpu": int64(400), "memory": int64(2048)}, "maxAllowed": map[string]any{"cpu": "1k", "memory": int64(4096)},
		})
	}
	for i := range 500 {
		expressions = append(expressions, map[string]any{"key": fmt.Sprintf("key-%d", i), "operator": "NotIn", "values": []any{"a", "b"}})
	}
	object := policyFrom(t, "{rollout: {start: InPlace}}")
	spec, _ := object.Object["spec"].(map[string]any)
	spec["template"] = map[string]any{"resourcePolicy": map[string]any{"containerPolicies": policies}}
	spec["namespaceSelector"] = map[string]any{"matchExpressions": expressions}
	object.SetCreationTimestamp(metav1.Now())
	r := request{user: "someone", resource: "clusterscalingpolicies", after: object}
	if looks, refuses, says := compiled(t, "warnings.yaml").answers(t, r); !looks || len(refuses) != 4 ||
		slices.ContainsFunc(says, func(s string) bool { return strings.Contains(s, "cost") || strings.Contains(s, "exceed") }) {
		t.Errorf("looked at: %t, warned by %v: %.1000q", looks, refuses, says)
	}
	r.may = may{"create verticalscalers everywhere", "update verticalscalers everywhere", "delete verticalscalers everywhere", "patch deployments everywhere"}
	judge(t, compiled(t, "users_policies.yaml"), r, `cannot patch resource "pods/resize" in API group "" at the cluster scope`)
}

// No user deletes the CRD of ScaledDeployments before an annotation on it allows that. A deletion of all CRDs begins without
// an object.
func TestDeletingTheCRDNeedsAnAnnotation(t *testing.T) {
	t.Parallel()
	const owners = "scaleddeployments.autoscaling.verticalscaler.io"
	allowing := func(value string) map[string]string {
		return map[string]string{"autoscaling.verticalscaler.io/allow-deletion": value}
	}
	for name, c := range map[string]struct {
		crd         string
		annotations map[string]string
		refused     bool
	}{
		"without annotations":     {owners, nil, true},
		"with another annotation": {owners, map[string]string{"helm.sh/resource-policy": "keep"}, true},
		"not allowed":             {owners, allowing("false"), true},
		"allowed":                 {owners, allowing("true"), false},
		"another CRD of ours":     {"verticalscalers.autoscaling.verticalscaler.io", nil, false},
		"a CRD of others":         {"scaleddeployments.example.com", nil, false},
		"all CRDs":                {"", nil, false},
	} {
		var crd runtime.Object
		if c.crd != "" {
			crd = mapsOf(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: c.crd, Annotations: c.annotations}})
		}
		for _, user := range []string{"admin", operator, "system:serviceaccount:argocd:argocd-application-controller"} {
			r := request{user: user, resource: "customresourcedefinitions", before: crd, isDeletion: true}
			_, refuses, says := compiled(t, "crd_deletion.yaml").answers(t, r)
			if refused := len(refuses) > 0; refused != c.refused || refused && !strings.Contains(says[0], "--cascade=orphan") {
				t.Errorf("%s: %s is refused by %q", name, user, says)
			}
		}
	}
}
