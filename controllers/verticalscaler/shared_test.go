// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Objects read without a copy belong to the cache: the indexes, the collector and other reconciles read
// them, too. newPlant checks it after each reconcile.
func TestAReconcileDoesNotModifyTheCache(t *testing.T) {
	for name, disturb := range map[string]func(*plant, *v1beta1.VerticalScaler){
		"another decision":      func(p *plant, vs *v1beta1.VerticalScaler) { p.learn(vs, 900) },
		"a failed reconcile":    func(p *plant, _ *v1beta1.VerticalScaler) { p.restart(); p.unreadable = errors.New("etcd is down") },
		"another scaler's turn": func(p *plant, vs *v1beta1.VerticalScaler) { p.order.Note(olderThan(vs)) },
		"a forged annotation": func(p *plant, vs *v1beta1.VerticalScaler) {
			vs.Status.Annotations = map[string]string{"other": "value", v1beta1.ClaimAnnotation: "shop/other"}
			must.Succeed(p.t, p.server.Status().Update(p.t.Context(), vs))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 500, func(vs *v1beta1.VerticalScaler) {
				vs.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRollout
				vs.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "checkout", UID: "deployment-1", Containers: []v1beta1.OriginalContainerResources{
					{ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("0.5"))}},
				}}
			})
			p.actuates = true
			for range 6 {
				p.mustReconcile()
			}
			vs, _, _ := p.reconcile()
			disturb(p, vs)
			p.clock.SetTime(p.clock.Now().Add(time.Hour))
			for range 4 {
				_, _, _ = p.reconcile() // it may fail
			}
		})
	}
}

// olderThan is another scaler of the same Deployment, which takes precedence.
func olderThan(vs *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
	other := vs.DeepCopy()
	other.Name, other.UID = "older", "older"
	other.CreationTimestamp = metav1.NewTime(vs.CreationTimestamp.Add(-time.Hour))
	return other
}
