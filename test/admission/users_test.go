// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

func TestUsersNeedTheRightsThatTheyUse(t *testing.T) {
	t.Parallel()
	p := compiled(t, "users.yaml")
	scaler := func(deployment string, mode v1beta1.UpdateMode) *v1beta1.VerticalScaler {
		s := objects.Scaler("shop", "mine", deployment)
		s.Spec.UpdatePolicy.UpdateMode = mode
		return s
	}
	owner := func(deployment, image string) *v1beta1.ScaledDeployment {
		o := &v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mine"},
			Spec:       v1beta1.ScaledDeploymentSpec{DeploymentName: deployment, Template: objects.Deployment("shop", "web").Spec.Template},
		}
		o.Spec.Template.Spec.Containers[0].Image = image
		return o
	}
	sized := func(o *v1beta1.ScaledDeployment, mode v1beta1.UpdateMode) *v1beta1.ScaledDeployment {
		o.Spec.Scaling = &v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: mode}}
		return o
	}
	changed := func(o *v1beta1.ScaledDeployment, change func(*v1beta1.Scaling)) *v1beta1.ScaledDeployment {
		change(o.Spec.Scaling)
		return o
	}
	recreating := func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
		s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRecreate
		return s
	}
	suspended := func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
		s.Spec.Suspend = true
		return s
	}
	labelled := func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
		s.Labels, s.Finalizers = map[string]string{"a": "b"}, []string{"example.com/a"}
		return s
	}
	const patchWeb, patchAPI, create, resize = "patch deployments/web", "patch deployments/api", "create deployments", "patch pods/resize"
	const patchMine, deleteWeb, deleteMine = "patch deployments/mine", "delete deployments/web", "delete deployments/mine"
	for name, c := range map[string]struct {
		before, after runtime.Object
		needs         may // all of them, and no others
	}{
		"creating a scaler":                          {after: scaler("web", "Recommend"), needs: may{patchWeb}},
		"changing a scaler":                          {before: scaler("web", "Recommend"), after: scaler("web", "Rollout"), needs: may{patchWeb}},
		"retargeting a scaler":                       {before: scaler("web", "Recommend"), after: scaler("api", "Recommend"), needs: may{patchAPI}},
		"labelling a scaler":                         {before: scaler("web", "InPlace"), after: labelled(scaler("web", "InPlace"))},
		"creating a scaler that resizes pods":        {after: scaler("web", "InPlace"), needs: may{patchWeb, resize}},
		"creating a scaler in the default mode":      {after: scaler("web", ""), needs: may{patchWeb, resize}},
		"creating a scaler in a mode of the future":  {after: scaler("web", "Future"), needs: may{patchWeb, resize}},
		"creating a scaler for new pods":             {after: scaler("web", "Initial"), needs: may{patchWeb}},
		"having a scaler resize pods":                {before: scaler("web", "Recommend"), after: scaler("web", "InPlace"), needs: may{patchWeb, resize}},
		"retargeting a scaler that resizes pods":     {before: scaler("web", "InPlace"), after: scaler("api", "InPlace"), needs: may{patchAPI, resize}},
		"having a scaler only recommend":             {before: scaler("web", "InPlace"), after: scaler("web", "Recommend"), needs: may{patchWeb}},
		"suspending a scaler":                        {before: scaler("web", "InPlace"), after: suspended(scaler("web", "InPlace")), needs: may{patchWeb}},
		"resuming a scaler":                          {before: suspended(scaler("web", "InPlace")), after: scaler("web", "InPlace"), needs: may{patchWeb, resize}},
		"having a scaler recreate pods":              {before: scaler("web", "InPlace"), after: recreating(scaler("web", "InPlace")), needs: may{patchWeb, resize}},
		"leaving the mode to the default":            {before: scaler("web", "InPlace"), after: scaler("web", ""), needs: may{patchWeb, resize}},
		"creating a ScaledDeployment":                {after: owner("", "a"), needs: may{create}},
		"changing a ScaledDeployment":                {before: owner("", "a"), after: owner("", "b"), needs: may{create, patchMine}},
		"changing one with a Deployment by name":     {before: owner("web", "a"), after: owner("web", "b"), needs: may{create, patchWeb}},
		"renaming its Deployment":                    {before: owner("web", "a"), after: owner("api", "a"), needs: may{create, patchWeb, deleteWeb}},
		"naming its Deployment":                      {before: owner("", "a"), after: owner("web", "a"), needs: may{create, patchMine, deleteMine}},
		"naming its Deployment as before":            {before: owner("", "a"), after: owner("mine", "a"), needs: may{create, patchMine}},
		"creating one that resizes pods":             {after: sized(owner("", "a"), "InPlace"), needs: may{create, resize}},
		"creating one that resizes pods, by default": {after: sized(owner("", "a"), ""), needs: may{create, resize}},
		"creating one that recommends":               {after: sized(owner("", "a"), "Recommend"), needs: may{create}},
		"having one resize pods":                     {before: owner("", "a"), after: sized(owner("", "a"), "InPlace"), needs: may{create, patchMine, resize}},
		"having one resize pods no more":             {before: sized(owner("", "a"), "InPlace"), after: owner("", "a"), needs: may{create, patchMine}},
		"having one only recommend":                  {before: sized(owner("", "a"), "InPlace"), after: sized(owner("", "a"), "Recommend"), needs: may{create, patchMine}},
		"suspending the scaling of one":              {before: sized(owner("", "a"), "InPlace"), after: changed(sized(owner("", "a"), "InPlace"), func(s *v1beta1.Scaling) { s.Suspend = true }), needs: may{create, patchMine}},
		"other scaling of one that resizes pods":     {before: sized(owner("", "a"), "InPlace"), after: changed(sized(owner("", "a"), "InPlace"), func(s *v1beta1.Scaling) { s.UpdatePolicy.NewPods = "AsTemplate" }), needs: may{create, patchMine, resize}},
		"another image in one that resizes pods":     {before: sized(owner("", "a"), "InPlace"), after: sized(owner("", "b"), "InPlace"), needs: may{create, patchMine}},
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
				r.may = append(append(may{"get deployments", "update deployments/web", "patch pods", "update pods/resize"}, c.needs[:i]...), c.needs[i+1:]...)
				if _, refuses := p.asks(t, r); len(refuses) != 1 {
					t.Errorf("without %q, refused by %v", missing, refuses)
				}
			}
		})
	}
}
