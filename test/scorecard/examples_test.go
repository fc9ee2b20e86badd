// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const twoExamples = `[
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "VerticalScaler", "metadata": {"name": "web", "namespace": "default"},
   "spec": {"deploymentName": "web"}, "status": {"observedGeneration": 7}},
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "VerticalScaler", "metadata": {"name": "api", "namespace": "default"},
   "spec": {"deploymentName": "backend", "suspend": true, "resourcePolicy": {"containerPolicies": [{"containerName": "app"}, {"containerName": "*"}]}}},
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "ScaledDeployment", "metadata": {"name": "orders", "namespace": "default"},
   "spec": {"replicas": 2, "scaling": {}, "template": {"spec": {"containers": [{"name": "app", "image": "example.com/orders:1"}]}}}, "status": {"replicas": 7}},
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "ScalingPolicy", "metadata": {"name": "backends", "namespace": "default"},
   "spec": {"priority": 3}, "status": {"selected": 7}},
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "ClusterScalingPolicy", "metadata": {"name": "fleet"},
   "spec": {"namespaceSelector": {"matchLabels": {"sizing": "auto"}}}},
  {"apiVersion": "autoscaling.verticalscaler.io/v1beta1", "kind": "VerticalScalerCheckpoint", "metadata": {"name": "web"}, "spec": {}}
]`

// run is a test's one result. Its waits end at once: their time is fake.
func run(t *testing.T, name string, s Setting) v1alpha3.TestResult {
	t.Helper()
	var status v1alpha3.TestStatus
	synctest.Test(t, func(t *testing.T) { status = Run(t.Context(), name, s, time.Unix(0, 0)) })
	if len(status.Results) != 1 || status.Results[0].Name != name {
		t.Fatalf("results: %+v", status.Results)
	}
	return status.Results[0]
}

// wants fails unless the result has the state, and its errors the words.
func wants(t *testing.T, got v1alpha3.TestResult, state v1alpha3.State, words ...string) {
	t.Helper()
	all := strings.Join(got.Errors, "\n")
	if got.State != state || (state == v1alpha3.PassState) != (all == "") {
		t.Fatalf("state %s with errors:\n%s\nwant %s", got.State, all, state)
	}
	for _, word := range words {
		if !strings.Contains(all, word) {
			t.Errorf("errors:\n%s\nwant %q in them", all, word)
		}
	}
}

// policyStalls is what an operator says of a policy that it cannot serve.
func policyStalls(reason, message string) func(*v1beta1.ScalingPolicy) {
	return func(p *v1beta1.ScalingPolicy) {
		meta.FindStatusCondition(p.Status.Conditions, "Ready").Status = "False"
		c := meta.FindStatusCondition(p.Status.Conditions, "Stalled")
		c.Status, c.Reason, c.Message = "True", reason, message
	}
}

func TestExamplesReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		operator func(*operator)
		examples string
		state    v1alpha3.State
		words    []string
	}{
		"passes with a healthy operator": {state: "pass"},
		"fails without an operator": {
			operator: func(o *operator) { o.absent = true },
			state:    "fail", words: []string{"example web: after 3s still: no operator has written a status", "namespace here", "example api"},
		},
		"fails without the claim": {
			operator: func(o *operator) { o.status = func(s *v1beta1.VerticalScaler) { s.Status.Annotations = nil } },
			state:    "fail", words: []string{`the claim in the status is "", not "here/web"`},
		},
		"fails with another namespace's claim": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) { s.Status.Annotations[v1beta1.ClaimAnnotation] = "default/web" }
			},
			state: "fail", words: []string{`is "default/web", not "here/web"`},
		},
		"fails if the operator does not follow a change": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) { s.Status.ObservedGeneration = 1 }
			},
			state: "fail", words: []string{"status.observedGeneration is 1, the spec's generation 2"},
		},
		"fails if a condition is about an older spec": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					meta.FindStatusCondition(s.Status.Conditions, "Applied").ObservedGeneration = 1
				}
			},
			state: "fail", words: []string{"condition Applied is about generation 1, not 2"},
		},
		"fails if a condition is missing": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) { meta.RemoveStatusCondition(&s.Status.Conditions, "Stalled") }
			},
			state: "fail", words: []string{"there is no condition Stalled"},
		},
		"fails if the Deployment is not found": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					meta.FindStatusCondition(s.Status.Conditions, "TargetFound").Status = "False"
					s.Status.Target = nil
				}
			},
			state: "fail", words: []string{"TargetFound is False", "status.target does not tell"},
		},
		"fails if a user must act": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					meta.FindStatusCondition(s.Status.Conditions, "Ready").Status = "False"
					meta.FindStatusCondition(s.Status.Conditions, "Stalled").Status = "True"
				}
			},
			state: "fail", words: []string{"Stalled is True"},
		},
		"fails if it is both ready and stalled": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					meta.FindStatusCondition(s.Status.Conditions, "Stalled").Status = "True"
				}
			},
			state: "fail", words: []string{"Stalled stands beside Ready=true"},
		},
		"fails if a finalizer is stuck": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"example.com/stuck"} }
			},
			state: "fail", words: []string{"VerticalScaler here/web is blocked by the finalizers [example.com/stuck]"},
		},
		"fails if the scaler of a ScaledDeployment is not created": {
			operator: func(o *operator) {
				o.owned = func(_ *v1beta1.ScaledDeployment, _ *appsv1.Deployment, s *v1beta1.VerticalScaler) { s.Name = "other" }
			},
			state: "fail", words: []string{"example orders: after 3s still: there is no VerticalScaler orders"},
		},
		"fails if its Deployment has another owner": {
			operator: func(o *operator) {
				o.owned = func(_ *v1beta1.ScaledDeployment, d *appsv1.Deployment, _ *v1beta1.VerticalScaler) {
					d.OwnerReferences = nil
				}
			},
			state: "fail", words: []string{"Deployment orders is not the owner's"},
		},
		"fails if the operator does not follow a change of replicas": {
			operator: func(o *operator) {
				o.owned = func(_ *v1beta1.ScaledDeployment, d *appsv1.Deployment, _ *v1beta1.VerticalScaler) {
					d.Spec.Replicas = ptr.To[int32](2)
				}
			},
			state: "fail", words: []string{"after changing spec.replicas: after 3s still: Deployment orders has 2 replicas, not 3"},
		},
		"fails if changes by others are not reverted": {
			operator: func(o *operator) {
				o.owned = func(o *v1beta1.ScaledDeployment, d *appsv1.Deployment, _ *v1beta1.VerticalScaler) {
					if o.Generation > 1 {
						d.Spec.Replicas = ptr.To[int32](3)
						o.Status.Replicas = 1
					}
				}
			},
			state: "fail", words: []string{"status.replicas is 1, the Deployment's is 0"},
		},
		"fails if a ScaledDeployment is refused": {
			operator: func(o *operator) {
				o.owned = func(o *v1beta1.ScaledDeployment, _ *appsv1.Deployment, _ *v1beta1.VerticalScaler) {
					c := meta.FindStatusCondition(o.Status.Conditions, "Stalled")
					c.Status, c.Reason, c.Message = "True", "Forbidden", "may not create"
				}
			},
			state: "fail", words: []string{"Stalled is True, Forbidden: may not create"},
		},
		"fails if a ScaledDeployment does not repeat the status of its scaler": {
			operator: func(o *operator) {
				o.owned = func(o *v1beta1.ScaledDeployment, _ *appsv1.Deployment, _ *v1beta1.VerticalScaler) {
					meta.RemoveStatusCondition(&o.Status.Conditions, "Sized")
				}
			},
			state: "fail", words: []string{"there is no condition Sized"},
		},
		"passes if the bundle has no rights for policies": {
			operator: func(o *operator) {
				o.policy = policyStalls("Forbidden", "may not update verticalscalers: kubectl apply -f https://x/policies.yaml")
			},
			state: "pass",
		},
		"fails if the message does not name what policies lack": {
			operator: func(o *operator) { o.policy = policyStalls("Forbidden", "may not update verticalscalers") },
			state:    "fail", words: []string{"example backends: after 3s still: Stalled is True, Forbidden: may not update"},
		},
		"fails if a policy is stalled for another reason": {
			operator: func(o *operator) { o.policy = policyStalls("InvalidSelector", "https://x/policies.yaml") },
			state:    "fail", words: []string{"Stalled is True, InvalidSelector"},
		},
		"fails if a policy is both ready and stalled": {
			operator: func(o *operator) {
				o.policy = func(p *v1beta1.ScalingPolicy) {
					meta.FindStatusCondition(p.Status.Conditions, "Stalled").Status = "True"
				}
			},
			state: "fail", words: []string{"Stalled stands beside Ready"},
		},
		"fails if the operator does not follow a change of a policy": {
			operator: func(o *operator) { o.policy = func(p *v1beta1.ScalingPolicy) { p.Status.ObservedGeneration = 1 } },
			state:    "fail", words: []string{"status.observedGeneration is 1, the spec's generation 2"},
		},
		"fails if a policy selects Deployments of others": {
			operator: func(o *operator) { o.policy = func(p *v1beta1.ScalingPolicy) { p.Status.Selected = 2 } },
			state:    "fail", words: []string{"2 Deployments are selected and 0 have a scaler"},
		},
		"fails if no operator serves policies": {
			operator: func(o *operator) {
				o.policy = func(p *v1beta1.ScalingPolicy) { p.Status = v1beta1.ScalingPolicyStatus{ObservedGeneration: -1} }
			},
			state: "fail", words: []string{"example backends: after 3s still: no operator has written a status"},
		},
		"fails without examples":     {examples: "[]", state: "error", words: []string{"the alm-examples hold no VerticalScaler"}},
		"fails with broken examples": {examples: "{", state: "error", words: []string{"decoding the alm-examples"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := healthy()
			if tc.operator != nil {
				tc.operator(o)
			}
			if tc.examples == "" {
				tc.examples = twoExamples
			}
			c := o.client(t)
			got := run(t, "examples-reconcile", settingWith(c, bundleWith(t, tc.examples)))
			wants(t, got, tc.state, tc.words...)
			var left appsv1.DeploymentList
			if err := c.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
				t.Errorf("%d Deployments are left, %v", len(left.Items), err)
			}
		})
	}
}

func TestExamplesReconcileTouchesNoForeignObjects(t *testing.T) {
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "web"}}
	c := healthy().client(t, theirs)
	wants(t, run(t, "examples-reconcile", settingWith(c, bundleWith(t, twoExamples))), "error", "Deployment here/web exists already")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
		t.Errorf("their Deployment: %v", err)
	}
}

func TestTheErrorNamesMissingKindsOrCluster(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "VerticalScaler"}}
		},
	}).Build()
	for _, test := range []string{"examples-reconcile", "upgrade-keeps-status"} {
		s := settingWith(c, bundleWith(t, twoExamples))
		wants(t, run(t, test, s), "error", "the cluster does not serve VerticalScaler, autoscaling.verticalscaler.io/v1beta1: install the operator first")
		s.Connect = func() (client.Client, error) { return nil, errors.New("no cluster") }
		wants(t, run(t, test, s), "error", "no cluster")
	}
	for _, test := range Names() {
		if test != "upgrade-keeps-status" {
			wants(t, run(t, test, settingWith(c, t.TempDir())), "error", "there is no ClusterServiceVersion")
		}
	}
	wants(t, run(t, "no-test", Setting{}), "error", `there is no test "no-test", only examples-reconcile, rbac-used-is-granted, upgrade-keeps-status`)
}
