// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

type change func(*explain.Evidence)

// checkout is a scaler of two pods, all of whose sizes are applied; and changes to that.
func checkout(changes ...change) explain.Evidence {
	q := resource.MustParse
	amounts := func(cpu, memory string) v1beta1.Amounts {
		return v1beta1.Amounts{CPU: ptr.To(q(cpu)), Memory: ptr.To(q(memory))}
	}
	e := explain.Evidence{
		Scaler: &v1beta1.VerticalScaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", Generation: 3},
			Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "checkout"},
			Status: v1beta1.VerticalScalerStatus{
				ObservedGeneration: 3,
				Summary:            &v1beta1.Summary{CPU: "230m", Memory: "480Mi", Pods: "2/2"},
				Recommendation: &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
					ContainerName: "app", ObservedSeconds: 8 * 24 * 3600,
					Target: amounts("230m", "480Mi"), UncappedTarget: amounts("230m", "480Mi"),
					LowerBound: amounts("204m", "471Mi"), UpperBound: amounts("241m", "501Mi"),
					Reasons: []v1beta1.RecommendationReason{
						{Resource: "cpu", Code: "RecentPeak", Value: q("200m")},
						{Resource: "cpu", Code: "SafetyMargin", Margin: "15%", Value: q("230m")},
						{Resource: "memory", Code: "Peak", Value: q("400Mi")},
						{Resource: "memory", Code: "Volatility", Margin: "20%", Value: q("480Mi")},
					},
				}}},
				Decision: &v1beta1.Decision{
					Time: ago(2 * time.Hour), Reason: "ScaleDown",
					Containers: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: amounts("230m", "480Mi")}},
				},
				History: []v1beta1.HistoryEntry{
					{Time: ago(2 * time.Hour), Message: "ScaleDown: app cpu 500m->230m"},
					{Time: ago(26 * time.Hour), Message: "OOMKill: app memory 256Mi->480Mi"},
				},
			},
		},
		Deployment: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": q("500m"), "memory": q("1Gi")},
				Limits:   corev1.ResourceList{"cpu": q("1"), "memory": q("1Gi")},
			}}},
		}}}},
		Pods: []workload.Pod{pod(230, 480), pod(230, 480)},
	}
	conditions(
		"Ready True OperatingNormally Operating normally", "TargetFound True DeploymentFound Deployment shop/checkout is found",
		"RecommendationProvided True EnoughHistory There is enough usage for a recommendation", "Applied True Applied All pods have the decided size",
		"Reconciling False OperatingNormally No change is in progress", "Stalled False OperatingNormally No action required",
	)(&e)
	for _, change := range changes {
		change(&e)
	}
	return e
}

// pod has these millicores and MiB, and twice the CPU as its limit.
func pod(cpu, memory int64) workload.Pod {
	amounts := quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory << 20}
	return workload.Pod{Containers: []workload.Container{{Name: "app", Resources: workload.Resources{
		Requests: amounts, Limits: quantity.Amounts{CPUMillis: 2 * cpu, MemoryBytes: memory << 20},
	}}}}
}

// conditions sets conditions, each as "Type Status Reason Message".
func conditions(lines ...string) change {
	return func(e *explain.Evidence) {
		for _, s := range lines {
			words := strings.SplitN(s, " ", 4)
			all := &e.Scaler.Status.Conditions
			*all = slices.DeleteFunc(*all, func(c metav1.Condition) bool { return c.Type == words[0] })
			*all = append(*all, metav1.Condition{
				Type: words[0], Status: metav1.ConditionStatus(words[1]), Reason: words[2], Message: words[3], LastTransitionTime: ago(9 * time.Hour),
			})
		}
		status := &e.Scaler.Status
		if status.Summary == nil {
			status.Summary = &v1beta1.Summary{}
		}
		status.Summary.Reason, status.Summary.ReasonTime = scaler.ReasonInShort(status.Conditions), ptr.To(ago(90*time.Minute))
	}
}

// stalled sets the conditions of a scaler that waits for a user.
func stalled(reason, message string) change {
	return conditions("Ready False "+reason+" "+message, "Applied False "+reason+" "+message, "Stalled True "+reason+" "+message)
}

// undecided takes back all that rests on usage.
func undecided(e *explain.Evidence) {
	s := &e.Scaler.Status
	s.Recommendation, s.Decision, s.History = nil, nil, nil
	s.Summary = &v1beta1.Summary{CPU: "500m", Memory: "1024Mi", Pods: "0/2"}
	e.Pods = []workload.Pod{pod(500, 1024), pod(500, 1024)}
}

func halfway(e *explain.Evidence) {
	e.Scaler.Status.Summary = &v1beta1.Summary{CPU: "500m->230m", Memory: "480Mi", Pods: "1/2"}
	e.Pods = []workload.Pod{pod(500, 480), pod(230, 480)}
}

func spec(f func(*v1beta1.VerticalScalerSpec)) change {
	return func(e *explain.Evidence) { f(&e.Scaler.Spec) }
}

// cases are typical statuses.
func cases() map[string]explain.Evidence {
	return map[string]explain.Evidence{
		"waiting-for-room": checkout(conditions("Ready True OperatingNormally The scaler works", "Applied False Deferred pod web-1, pod web-2: no room"), func(e *explain.Evidence) {
			e.Pods = nil
			for i, since := range []time.Duration{4 * time.Minute, 7 * time.Minute, time.Minute, 2 * time.Minute} {
				waits := pod(500, 1024)
				waits.Name, waits.Node = "web-"+strconv.Itoa(i+1), "node-7"
				waits.Resize = workload.Resize{Deferred: true, Since: noon.Add(-since), Message: "Node didn't have enough resource: cpu, requested: 800, used: 3500, capacity: 4000"}
				e.Pods = append(e.Pods, waits)
			}
			e.Pods[3].Resize.Message = ""
		}),
		"applied": checkout(),
		"learning": checkout(undecided, conditions(
			"Ready True Learning Collecting usage; the first recommendation takes a few minutes",
			"RecommendationProvided False Learning Collecting usage; the first recommendation takes a few minutes",
			"Applied False Learning There is no recommendation yet")),
		"resizing": checkout(halfway, conditions("Applied False Resizing Pods are being resized in place", "Reconciling True Resizing Pods are being resized in place")),
		"verifying": checkout(halfway, func(e *explain.Evidence) {
			e.Scaler.Status.Decision.Time = ago(time.Minute)
			e.Scaler.Status.Decision.Verification = &v1beta1.Verification{StartTime: ago(time.Minute), LastGood: []v1beta1.ContainerDecision{{
				ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("500m"))},
			}}}
		}, spec(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.TolerancePercent = ptr.To[int32](5) }), conditions(
			"Applied False Verifying Verifying the first resized pods before lowering the rest",
			"Reconciling True Verifying Verifying the first resized pods before lowering the rest")),
		"change-reverted": checkout(func(e *explain.Evidence) {
			e.Scaler.Status.Decision.Reason = "Reverted"
			e.Scaler.Status.RevertedChanges = []v1beta1.RevertedChange{{
				ContainerName: "app", Resource: "memory", Value: resource.MustParse("320Mi"), LastGood: resource.MustParse("480Mi"), Time: ago(2 * time.Hour),
				Message: "pod checkout-1: container app was OOM-killed",
			}}
		}, conditions("Applied True ChangeReverted All pods have the decided size. app memory: stays, because 320Mi was reverted")),
		"hpa-conflict": checkout(conditions(
			"Applied True HPAConflict All pods have the decided size. cpu: not managed, because HorizontalPodAutoscaler web scales on its utilization"), func(e *explain.Evidence) {
			e.Deployment.Name = "checkout"
			e.HPAs = []autoscalingv2.HorizontalPodAutoscaler{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "checkout"},
				Metrics: []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{
					Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: ptr.To[int32](80)},
				}}},
			}}}
		}),
		"qos-change":    checkout(halfway, stalled("QoSChange", "pod checkout-1: has no requests, and the first requests cannot be set in place: set requests in the Deployment, or use updateMode Rollout")),
		"node-capacity": checkout(halfway, conditions("Applied True NodeCapacity All pods have the decided size. app cpu: 9000m is recommended, but no node has room for it beside the pod's other containers")),
		"contested": checkout(stalled("Contested", "Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from what it applies"),
			spec(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.UpdateMode = "Rollout" })),
		"paused":    checkout(conditions("Ready True Paused The annotation autoscaling.verticalscaler.io/paused is set", "Applied False Paused The annotation autoscaling.verticalscaler.io/paused is set")),
		"suspended": checkout(conditions("Ready True Suspended Nothing is changed while the scaler is suspended", "Applied False Suspended Nothing is changed while the scaler is suspended")),
		"conflict": checkout(undecided, func(e *explain.Evidence) { e.Scaler.Status.Summary = nil }, conditions(
			"Ready False Conflict VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
			"TargetFound False Conflict VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two",
			"RecommendationProvided Unknown Conflict Usage is collected once this scaler sizes the Deployment",
			"Applied False Conflict Another scaler sizes the Deployment",
			"Stalled True Conflict VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two")),
		"deployment-not-found": checkout(undecided, func(e *explain.Evidence) { e.Deployment, e.Pods, e.Scaler.Status.Summary = nil, nil, nil }, conditions(
			"Ready True DeploymentNotFound Waiting for Deployment shop/checkout to be created",
			"TargetFound False DeploymentNotFound Waiting for Deployment shop/checkout to be created",
			"RecommendationProvided Unknown DeploymentNotFound Usage is collected once this scaler sizes the Deployment",
			"Applied Unknown DeploymentNotFound There is no Deployment to size")),
		"metrics-unavailable": checkout(conditions(
			"Ready False MetricsUnavailable Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
			"RecommendationProvided False MetricsUnavailable Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served",
			"Stalled True MetricsUnavailable Usage cannot be read, so nothing is lowered: metrics.k8s.io is not served")),
		"within-bounds": waiting(),
		"recommend": checkout(func(e *explain.Evidence) {
			e.Scaler.Spec.UpdatePolicy.UpdateMode, e.Scaler.Status.Decision = "Recommend", nil
			e.Scaler.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
				ContainerName: "*", ControlledResources: []v1beta1.ControlledResource{"cpu"},
				MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("50m"))}, MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("2"))},
			}}}
		}, conditions("Ready True RecommendOnly Recommendations are not applied", "Applied False RecommendOnly updateMode is Recommend: recommendations are not applied")),
		"not-observed": {Scaler: &v1beta1.VerticalScaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", Generation: 1},
			Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "checkout"}, Status: v1beta1.VerticalScalerStatus{ObservedGeneration: -1},
		}},
		// A status written by another client or a newer operator; and objects that may not be read.
		"strange": checkout(func(e *explain.Evidence) {
			e.Deployment, e.Pods, e.Missing = nil, nil, []string{"The pod template and the pods of Deployment shop/checkout: forbidden"}
			e.Scaler.Generation, e.Scaler.Spec.UpdatePolicy.UpdateMode = 4, "Newer"
			rec := &e.Scaler.Status.Recommendation.ContainerRecommendations[0]
			rec.Target.CPU = ptr.To(resource.MustParse("231m"))
			rec.Reasons = append(rec.Reasons, v1beta1.RecommendationReason{Resource: "memory", Code: "Dreamt", Value: resource.MustParse("1e9999")})
			e.Scaler.Status.Decision.Reason = "Whim"
		}, conditions("Applied False Moonphase The moon\x1b[31m is\nfull")),
	}
}

func TestText(t *testing.T) {
	for name, e := range cases() {
		t.Run(name, func(t *testing.T) {
			got := explain.Of(e).Text(noon)
			golden.Compare(t, name+".txt", got)
		})
	}
}

// goldenData compares data as YAML.
func goldenData(t *testing.T, name string, data any) {
	t.Helper()
	text, err := yaml.Marshal(data)
	must.Succeed(t, err)
	golden.Compare(t, name, string(text))
}

func TestData(t *testing.T) {
	for name, e := range cases() {
		x := explain.Of(e)
		if len(x.Findings) == 0 || x.Findings[0].Reason.Reason == "" || x.Findings[0].Advice == "" {
			t.Errorf("%s: nothing is found: %+v", name, x.Findings)
		}
		if name == "resizing" {
			goldenData(t, "resizing.yaml", x)
		}
	}
}

func TestOverview(t *testing.T) {
	var o explain.Overview
	for _, name := range []string{"applied", "contested", "deployment-not-found", "hpa-conflict", "learning", "not-observed", "resizing", "strange"} {
		e := cases()[name]
		e.Scaler.Name = name
		e.Scaler.Generation = max(0, e.Scaler.Status.ObservedGeneration) // no edit is ahead
		if name == "contested" {                                         // the template was taken over, and its author's requests are kept
			e.Deployment.UID = "uid"
			e.Scaler.OwnerReferences = []metav1.OwnerReference{{Kind: "ScaledDeployment", Name: "shop", Controller: ptr.To(true)}}
			e.Scaler.Status.OriginalResources = &v1beta1.OriginalResources{UID: "uid", Containers: []v1beta1.OriginalContainerResources{{
				ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("100m")), Memory: ptr.To(resource.MustParse("0"))},
				Limits: v1beta1.Amounts{Memory: ptr.To(resource.MustParse("736Mi"))},
			}}}
		}
		o.Scalers = append(o.Scalers, explain.RowOf(e))
	}
	o.ScaledDeployments = []explain.OwnedRow{
		explain.OwnedRowOf(&v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api"}, Spec: v1beta1.ScaledDeploymentSpec{DeploymentName: "backend", Replicas: ptr.To[int32](3)},
			Status: v1beta1.ScaledDeploymentStatus{Replicas: 3, AvailableReplicas: 2, Conditions: []metav1.Condition{
				{Type: "Ready", Status: "False", Reason: "RollingOut", Message: "2 of 3 pods are available"}, {Type: "Sized", Status: "True", Reason: "OperatingNormally"},
			}},
		}, nil, noon),
		explain.OwnedRowOf(&v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}}, nil, noon),
	}
	for name, columns := range map[string]explain.Columns{
		"overview.txt":      {},
		"overview-wide.txt": {Namespace: true, Wide: true},
		"overview-bare.txt": {Bare: true},
	} {
		got := o.Table(noon, columns)
		golden.Compare(t, name, got)
	}
	goldenData(t, "overview.yaml", o)
	for want, o := range map[string]explain.Overview{
		"8 scalers, 2 ScaledDeployments: 4 are not Ready, 6 require action": o,
		"1 scaler: all are Ready, none requires action":                     {Scalers: o.Scalers[:1]},
		"1 ScaledDeployment: 1 is not Ready, none requires action":          {ScaledDeployments: o.ScaledDeployments[:1]},
	} {
		if got := o.Tally().String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Only known savings are shown.
func TestSavingsAreShownOnlyIfTheyAreKnown(t *testing.T) {
	e := checkout()
	saved := explain.RowOf(e).Saved
	if diff := cmp.Diff(&explain.Saved{Cores: 0.54, GiB: 1.0625}, saved); diff != "" { // 2 × (500m - 230m), 2 × (1024Mi - 480Mi)
		t.Errorf("saved (-want +got):\n%s", diff)
	}
	for name, change := range map[string]change{
		"no Deployment": func(e *explain.Evidence) { e.Deployment = nil },
		"no decision":   func(e *explain.Evidence) { e.Scaler.Status.Decision = nil },
		"no summary":    func(e *explain.Evidence) { e.Scaler.Status.Summary = nil },
		"no number":     func(e *explain.Evidence) { e.Scaler.Status.Summary.Pods = "many/9" },
		"a wild number": func(e *explain.Evidence) { e.Scaler.Status.Summary.Pods = "9223372036854775807/1" },
		"a wild request": func(e *explain.Evidence) {
			e.Deployment.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1e9999")
		},
	} {
		e := checkout(change)
		if saved := explain.RowOf(e).Saved; saved != nil {
			t.Errorf("%s: saved %+v", name, *saved)
		}
	}
}
