// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// settled is how long a pod must be silent before a lower request is a violation: a reconcile may
// have read usage before.
const settled = 5 * time.Second

// answer is what a source of usage has answered about a namespace.
type answer struct {
	// at is the newest revision that the monitor had seen, and time when that was.
	at   int64
	time time.Time
	// silent are the running pods without usage, by UID, and their ReplicaSets.
	silent map[types.UID]types.UID
}

// Answered records which running pods of a namespace a source of usage has no samples of.
func (m *Monitor) Answered(namespace string, samples []usage.Sample, now time.Time) {
	type container struct{ pod, name string }
	heard := sets.New[container]()
	for _, s := range samples {
		heard.Insert(container{s.Pod, s.Container})
	}
	a := answer{at: m.newest, time: now, silent: map[types.UID]types.UID{}}
	for uid, pod := range m.pods {
		owner := metav1.GetControllerOf(pod)
		if pod.Namespace != namespace || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || owner == nil {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return !heard.Has(container{pod.Name, c.Name}) }) {
			a.silent[uid] = owner.UID
		}
	}
	m.answers[namespace] = append(m.answers[namespace], a)
}

// silentPod is a pod of the Deployment that was silent for long before the write; empty for none.
func (m *Monitor) silentPod(w write, deployment string) types.UID {
	before := slices.DeleteFunc(slices.Clone(m.answers[w.namespace]), func(a answer) bool { return a.at >= w.at })
	if len(before) == 0 {
		return ""
	}
	last := before[len(before)-1]
	for uid, set := range last.silent {
		if m.sets[set] != deployment {
			continue
		}
		since := last.time
		for _, a := range slices.Backward(before) {
			if _, silent := a.silent[uid]; !silent {
				break
			}
			since = a.time
		}
		if last.time.Sub(since) >= settled {
			return uid
		}
	}
	return ""
}

// loweredInSilence describes the requests that were lowered while a pod was silent. Usage is not the
// reason if a boost ends, if a bound of the user falls, or if a template is reverted.
func (m *Monitor) loweredInSilence(w write, deployment string, specs []v1beta1.VerticalScalerSpec) (out []string) {
	uid := m.silentPod(w, deployment)
	if uid == "" || w.set == "" && m.isReverting(w, deployment) {
		return nil
	}
	for _, c := range w.changes {
		isExempt := slices.ContainsFunc(specs, func(spec v1beta1.VerticalScalerSpec) bool { return mayLower(c, spec) })
		if c.requestLowered && !isExempt {
			out = append(out, fmt.Sprintf("container %s, %s: the request was lowered to %s, and pod %s has no usage", c.container, c.resource, &c.request, uid))
		}
	}
	return out
}

// mayLower reports whether the spec lowers a request for another reason than usage.
func mayLower(c change, spec v1beta1.VerticalScalerSpec) bool {
	policy := spec.ResourcePolicy.For(c.container)
	if policy.StartupBoost != nil && c.resource == corev1.ResourceCPU {
		return true
	}
	most := boundOf(policy.MaxAllowed, c.resource)
	return most != nil && c.requestBefore.Cmp(*most) > 0
}

// isReverting reports whether a scaler of the Deployment had last decided to revert a change.
func (m *Monitor) isReverting(w write, deployment string) bool {
	for key, versions := range m.scalers {
		if key.Namespace != w.namespace {
			continue
		}
		isReverting := false
		for _, v := range versions {
			if v.at < w.at && v.spec.DeploymentName == deployment {
				isReverting = v.reverts
			}
		}
		if isReverting {
			return true
		}
	}
	return false
}
