// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

func TestUsersNeedTheRightsThatTheyUse(t *testing.T) {
	t.Parallel()
	p := compiled(t, "users.yaml")
	scaler := func(deployment string, mode v1beta1.UpdateMode) *v1beta1.VerticalScaler {
		s := testkit.Scaler("shop", "mine", deployment)
		s.Spec.UpdatePolicy.UpdateMode = mode
		return s
	}
	owner := func(deployment, image string) *v1beta1.ScaledDeployment {
		o := &v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"},
			Spec:       v1beta1.ScaledDeploymentSpec{DeploymentName: deployment, Template: testkit.Deployment("shop", "web").Spec.Template},
		}
		o.Spec.Template.Spec.Containers[0].Image = image
		return o
	}
	labelled := func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
		s.Labels, s.Finalizers = map[string]string{"a": "b"}, []string{"example.com/a"}
		return s
	}
	const patchWeb, patchAPI, create = "patch deployments/web", "patch deployments/api", "create deployments"
	for name, c := range map[string]struct {
		before, after runtime.Object
		needs         may // all of them, and no others
	}{
		"creating a scaler":                      {after: scaler("web", "Recommend"), needs: may{patchWeb}},
		"changing a scaler":                      {before: scaler("web", "Recommend"), after: scaler("web", "Rollout"), needs: may{patchWeb}},
		"retargeting a scaler":                   {before: scaler("web", "Recommend"), after: scaler("api", "Recommend"), needs: may{patchAPI}},
		"labelling a scaler":                     {before: scaler("web", "Recommend"), after: labelled(scaler("web", "Recommend"))},
		"creating a ScaledDeployment":            {after: owner("", "a"), needs: may{create}},
		"changing a ScaledDeployment":            {before: owner("", "a"), after: owner("", "b"), needs: may{create, "patch deployments/mine"}},
		"changing one with a Deployment by name": {before: owner("web", "a"), after: owner("web", "b"), needs: may{create, patchWeb}},
		"renaming its Deployment":                {before: owner("web", "a"), after: owner("api", "a"), needs: may{create, patchWeb}},
		"naming its Deployment":                  {before: owner("", "a"), after: owner("web", "a"), needs: may{create, "patch deployments/mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{user: "someone", resource: "verticalscalers", after: mapsOf(t, c.after), may: c.needs}
			if _, ok := c.after.(*v1beta1.ScaledDeployment); ok {
				r.resource = "scaleddeployments"
			}
			if c.before != nil {
				r.before = mapsOf(t, c.before)
			}
			looks, refuses := p.asks(t, r)
			if looks != (len(c.needs) > 0) || len(refuses) > 0 {
				t.Errorf("with %q, looked at: %t, refused by %v", c.needs, looks, refuses)
			}
			for i, missing := range c.needs {
				r.may = append(append(may{"get deployments", "update deployments/web", "delete deployments/web"}, c.needs[:i]...), c.needs[i+1:]...)
				if _, refuses := p.asks(t, r); len(refuses) != 1 {
					t.Errorf("without %q, refused by %v", missing, refuses)
				}
			}
		})
	}
}
