// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// noon is when planted histories begin. Each event and write is a second after the last.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// story is a planted history.
type story struct {
	record

	seconds int
}

func (s *story) now() time.Time {
	s.seconds++
	return noon.Add(time.Duration(s.seconds) * time.Second)
}

// sees adds an event.
func (s *story) sees(kind watch.EventType, o client.Object) {
	at := s.now()
	o = o.DeepCopyObject().(client.Object)
	o.SetResourceVersion(strconv.Itoa(s.seconds))
	s.events = append(s.events, Event{Type: kind, Object: o, Seen: at})
}

// writes adds a write of the operator, such as "patch pods/resize a 200".
func (s *story) writes(line string) {
	var w Write
	if _, err := fmt.Sscan(line, &w.Verb, &w.Resource, &w.Name, &w.Code); err != nil {
		panic(err)
	}
	w.Received = s.now()
	s.record.writes = append(s.record.writes, w)
}

// quietNow says that the scenario has converged.
func (s *story) quietNow() { s.quiet = s.now() }

// A world without a cluster, for its builders of objects.
var someWorld = &World{namespace: "shop"}

func somePod(name string, s size, changes ...func(*corev1.Pod)) *corev1.Pod {
	t := template(map[string]string{appLabel: web}, s)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: t.Labels}, Spec: t.Spec}
	begin(pod, 0, metav1.NewTime(noon))
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func asksFor(s size) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = template(nil, s).Spec.Containers }
}

func beingEvicted(p *corev1.Pod) {
	p.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Reason: "EvictionByEvictionAPI", Status: "True"})
}

func wasKilled(p *corev1.Pod) { kill(p, "zeta", metav1.NewTime(noon)) }

func someDeployment(s size) *appsv1.Deployment {
	d := someWorld.deployment(web, s)
	d.UID = "web"
	return d
}

func byOperator(o client.Object, at int) {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: ownership.Scalers, Time: ptr.To(metav1.NewTime(noon.Add(time.Duration(at) * time.Second)))}})
}

// someScaler has all conditions of a scaler that has applied its decision.
func someScaler(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := someWorld.scaler(web, web, v1beta1.UpdateModeInPlace, large)
	s.UID, s.Generation = "scaler", 1
	s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRecreate
	s.Status.ObservedGeneration = 1
	s.Status.Decision = &v1beta1.Decision{Reason: "Bounds"}
	for _, c := range []string{"Ready True", "Applied True", "Changing False", "Reconciling False", "Stalled False"} {
		kind, status, _ := strings.Cut(c, " ")
		reason := "OperatingNormally"
		if kind == v1beta1.ConditionApplied {
			reason = v1beta1.ReasonApplied
		}
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon),
		})
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func says(kind string, status metav1.ConditionStatus) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		for i := range s.Status.Conditions {
			if s.Status.Conditions[i].Type == kind {
				s.Status.Conditions[i].Status = status
			}
		}
	}
}

func surer(s *v1beta1.VerticalScaler) {
	s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "zeta", ObservedSeconds: 8}}}
}

// Each planted history violates one promise, and exactly the named oracle sees it. Each
// oracle is seen to fail.
func TestOraclesSeeWhatIsWrong(t *testing.T) {
	three := func(s *story) {
		s.sees(watch.Added, someDeployment(small))
		s.sees(watch.Added, someScaler())
		for _, name := range []string{"a", "b", "c"} {
			s.sees(watch.Added, somePod(name, small))
		}
	}
	waiting := func(s *story, name string) { s.sees(watch.Modified, somePod(name, small, asksFor(large))) }
	seen := map[string]bool{}
	for name, tc := range map[string]struct {
		tell func(*story)
		want string // the oracle and what it says
	}{
		"the operator writes a pod itself": {func(s *story) {
			s.sees(watch.Added, somePod("a", small))
			s.writes("patch pods a 403")
		}, "only-own-writes: patch pods a (403)"},
		"a resize is invalid": {func(s *story) { s.writes("patch pods/resize a 422") }, "never-invalid: patch pods/resize a"},
		"memory falls to the size that was killed": {func(s *story) {
			s.sees(watch.Added, somePod("a", small))
			s.sees(watch.Modified, somePod("a", small, wasKilled))
			s.sees(watch.Added, somePod("b", large))
			s.sees(watch.Modified, somePod("b", large, asksFor(small)))
		}, "above-kills: pod b: container zeta was lowered"},
		"a pod goes there and back": {func(s *story) {
			for _, is := range []size{small, large, small, large} {
				s.sees(watch.Modified, somePod("a", small, asksFor(is)))
			}
		}, "no-flapping: pod a has"},
		"a pod is evicted twice": {func(s *story) {
			three(s)
			waiting(s, "a")
			s.writes("create pods/eviction a 201")
			s.writes("create pods/eviction a 201")
		}, "evictions: pod a was evicted twice"},
		"a pod of the neighbour is evicted": {func(s *story) {
			three(s)
			s.sees(watch.Added, somePod("n", small, asksFor(large), func(p *corev1.Pod) { p.Labels = map[string]string{appLabel: neighbour} }))
			s.writes("create pods/eviction n 201")
		}, `evictions: pod n of "neighbour" was evicted, which no scaler may do`},
		"a pod that has its size is evicted": {func(s *story) {
			three(s)
			s.writes("create pods/eviction a 201")
		}, "evictions: pod a was evicted, and waited for no resize"},
		"a pod is deleted": {func(s *story) {
			three(s)
			s.writes("delete pods a 200")
		}, "only-own-writes: delete pods a (200)"},
		"a second pod is evicted before the first is replaced": {func(s *story) {
			three(s)
			for _, name := range []string{"a", "b"} {
				waiting(s, name)
				s.writes("create pods/eviction " + name + " 201")
				s.sees(watch.Modified, somePod(name, small, asksFor(large), beingEvicted))
			}
		}, "availability: with the eviction of pod b, 1 of 3 pods of web were ready"},
		"a write after the end": {func(s *story) {
			s.sees(watch.Added, someScaler())
			s.quietNow()
			s.writes("update verticalscalers/status web 409")
		}, "quiet: update verticalscalers/status web (409) after"},
		"a status write at the end changes more than the recommendation": {func(s *story) {
			s.sees(watch.Added, someScaler())
			s.quietNow()
			s.writes("update verticalscalers/status web 200")
			s.sees(watch.Modified, someScaler(surer, says("Applied", "False")))
		}, "quiet: update verticalscalers/status web (200) after"},
		"a status write without a change": {func(s *story) {
			s.writes("update verticalscalers/status web 200")
			s.sees(watch.Added, someScaler())
			s.writes("update verticalscalers/status web 200")
		}, "every-write-counts: verticalscalers web was written 2 times, and has changed 1 times"},
		"a second write after the resize": {func(s *story) {
			s.sees(watch.Added, somePod("a", small))
			s.writes("patch pods/resize a 200")
			s.sees(watch.Modified, somePod("a", small, asksFor(large)))
			s.writes("update verticalscalercheckpoints web 409")
			s.writes("patch pods/resize a 200")
		}, "every-write-counts: pod a was resized 2 times, and its spec has changed 1 times"},
		"a second write after the resize, which is refused": {func(s *story) {
			s.sees(watch.Added, somePod("a", small))
			s.writes("patch pods/resize a 200")
			s.sees(watch.Modified, somePod("a", small, asksFor(large)))
			s.writes("patch pods/resize a 409")
		}, "every-write-counts: pod a was resized again at once (409)"},
		"a resize after the scaler is gone": {func(s *story) {
			s.sees(watch.Added, somePod("a", small))
			s.sees(watch.Added, someScaler())
			s.sees(watch.Deleted, someScaler())
			pod := somePod("a", small, asksFor(large))
			byOperator(pod, 1)
			s.writes("patch pods/resize a 200")
			s.sees(watch.Modified, pod)
		}, "after-deletion: *v1.Pod a was written after its scaler was gone"},
		"the observed generation is ahead": {func(s *story) {
			s.sees(watch.Added, someScaler(func(s *v1beta1.VerticalScaler) { s.Generation = 0 }))
		}, "kstatus: scaler web at 1: observed generation 1 is ahead of 0"},
		"the observed generation goes back": {func(s *story) {
			s.sees(watch.Added, someScaler(func(s *v1beta1.VerticalScaler) {
				s.Generation, s.Status.ObservedGeneration = 2, 2
				for i := range s.Status.Conditions {
					s.Status.Conditions[i].ObservedGeneration = 2
				}
			}))
			s.sees(watch.Modified, someScaler(func(s *v1beta1.VerticalScaler) { s.Generation = 2 }))
		}, "kstatus: scaler web at 2: observed generation went from 2 to 1"},
		"a condition is about another generation": {func(s *story) {
			s.sees(watch.Added, someScaler(func(s *v1beta1.VerticalScaler) { s.Status.Conditions[3].ObservedGeneration = 0 }))
		}, "kstatus: scaler web at 1: Reconciling is about generation 0"},
		"Ready and Stalled": {func(s *story) {
			s.sees(watch.Added, someScaler(says("Stalled", "True")))
		}, "kstatus: scaler web at 1: both Ready and Stalled"},
		"Reconciling and Stalled": {func(s *story) {
			s.sees(watch.Added, someScaler(says("Stalled", "True"), says("Ready", "False"), says("Reconciling", "True"), says("Applied", "False")))
		}, "kstatus: scaler web at 1: both Reconciling and Stalled"},
		"Applied and Reconciling": {func(s *story) {
			s.sees(watch.Added, someScaler(says("Reconciling", "True")))
		}, "kstatus: scaler web at 1: both Applied and Reconciling"},
		"Changing and Stalled": {func(s *story) {
			s.sees(watch.Added, someScaler(says("Stalled", "True"), says("Ready", "False"), says("Changing", "True"), says("Applied", "False")))
		}, "kstatus: scaler web at 1: both Changing and Stalled"},
		"Applied and Changing": {func(s *story) {
			s.sees(watch.Added, someScaler(says("Changing", "True")))
		}, "kstatus: scaler web at 1: both Applied and Changing"},
		"Applied without a decision": {func(s *story) {
			s.sees(watch.Added, someScaler(func(s *v1beta1.VerticalScaler) { s.Status.Decision = nil }))
		}, "kstatus: scaler web at 1: Applied, and nothing is decided"},
		"a panic that the controller has recovered from": {func(s *story) {
			s.operator.Log = []byte("{\"msg\":\"Starting\"}\n{\"msg\":\"Observed a panic\",\"panic\":\"nil\"}\n")
		}, `panics: {"msg":"Observed a panic"`},
		"more goroutines than in the reference run": {func(s *story) {
			s.operator.Reference, s.operator.End = map[string]float64{"go_goroutines": 200}, map[string]float64{"go_goroutines": 300}
		}, "process: go_goroutines is 300, and 200 in the reference run"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{}
			tc.tell(s)
			got := judge(s.record)
			if len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("the oracles say %q, want %q", got, tc.want)
			}
			oracle, _, _ := strings.Cut(tc.want, ":")
			seen[oracle] = true
		})
	}
	for name := range oracles() {
		if !seen[name] {
			t.Errorf("no planted history violates %s", name)
		}
	}
}

// A run as it should be: a pod is resized, others are evicted one after the other, the
// recommendation becomes surer, and original values are restored when the scaler goes.
func TestOraclesAllowWhatIsRight(t *testing.T) {
	s := &story{}
	s.sees(watch.Added, someDeployment(small))
	for _, name := range []string{"a", "b", "c"} {
		s.sees(watch.Added, somePod(name, small))
	}
	s.sees(watch.Added, someScaler(func(s *v1beta1.VerticalScaler) { s.Status = v1beta1.VerticalScalerStatus{ObservedGeneration: -1} }))
	s.writes("create newpodsizes verticalscaler 201")
	s.sees(watch.Added, &v1beta1.NewPodSizes{ObjectMeta: metav1.ObjectMeta{Name: "verticalscaler", UID: "sizes"}})
	s.writes("patch pods/resize a 409")
	for _, name := range []string{"a", "b"} {
		s.writes("patch pods/resize " + name + " 200")
		s.sees(watch.Modified, somePod(name, small, asksFor(large)))
	}
	s.sees(watch.Modified, somePod("a", large))
	s.writes("create pods/eviction b 429")
	s.writes("create pods/eviction b 201")
	s.sees(watch.Modified, somePod("b", small, asksFor(large), beingEvicted))
	s.sees(watch.Added, somePod("d", large))
	s.sees(watch.Deleted, somePod("b", small, asksFor(large), beingEvicted))
	s.writes("update verticalscalers/status web 200")
	s.sees(watch.Modified, someScaler())
	s.quietNow()
	s.writes("update verticalscalercheckpoints web 200")
	s.sees(watch.Modified, &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: web, UID: "checkpoint"}})
	s.writes("update verticalscalers/status web 200")
	s.sees(watch.Modified, someScaler(surer))
	s.operator.Log = []byte("{\"msg\":\"Starting\"}\n")
	s.operator.Reference = map[string]float64{"go_goroutines": 200, "go_memstats_heap_inuse_bytes": 20 << 20}
	s.operator.End = map[string]float64{"go_goroutines": 230, "go_memstats_heap_inuse_bytes": 30 << 20}
	if got := judge(s.record); len(got) > 0 {
		t.Errorf("the oracles say %q", got)
	}

	s.quiet = time.Time{}
	d := someDeployment(large)
	byOperator(d, 1)
	s.writes("patch deployments web 200")
	s.sees(watch.Modified, d)
	d = someDeployment(small)
	byOperator(d, 2)
	s.writes("patch deployments web 200")
	s.sees(watch.Modified, d)
	s.sees(watch.Deleted, someScaler())
	if got := judge(s.record); len(got) > 0 {
		t.Errorf("after the deletion, the oracles say %q", got)
	}
}
