// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// rewritten is the Deployment, and our fields of it, after a rewrite.
func rewritten(t *testing.T, d *appsv1.Deployment, originals []plan.Original, sizes ...plan.Size) (appsv1.Deployment, []string) {
	t.Helper()
	patch, err := rewritePatch(d, sizes, originals, ownedFields(t, d.ManagedFields...))
	must.Succeed(t, err)
	patched := patchedBy(t, d, patch)
	var owned []string
	ownedFields(t, patched.ManagedFields...).Iterate(func(path fieldpath.Path) {
		owned = append(owned, path.String())
	})
	slices.Sort(owned)
	return patched, owned
}

func cpuSize(container string, request, limit int64) plan.Size {
	return plan.Size{Container: container, Resources: workload.Resources{
		Requests: quantity.Amounts{CPUMillis: request}, Limits: quantity.Amounts{CPUMillis: limit},
	}}
}

const inApp = `.spec.template.spec.containers[name="app"].resources`

// Another manager cannot remove a container that we own, so we own only values. Each value is ours,
// even if it is unchanged.
func TestARewriteOwnsValuesAndNoContainer(t *testing.T) {
	d := templateOf("500m", "1")
	d.ManagedFields = []metav1.ManagedFieldsEntry{
		managed("kustomize-controller", "", allOfApp),
		managed(Name, "", cpuRequest), // as a server-side apply left it: with the container
	}
	got, owned := rewritten(t, d, []plan.Original{{Container: "app", CPU: true}}, cpuSize("app", 345, 1000))
	assert.Equal(t, "owned", []string{inApp + ".limits.cpu", inApp + ".requests.cpu"}, owned)
	if len(got.ManagedFields) != 2 || got.ManagedFields[0].Manager != "kustomize-controller" || got.ManagedFields[1].Operation != "Update" {
		t.Errorf("managed fields: %+v", got.ManagedFields)
	}
	if got.UID != "uid" || got.ResourceVersion != "8" {
		t.Errorf("the patch is of UID %s and version %s", got.UID, got.ResourceVersion)
	}
}

func TestARewriteKeepsTheOrderOfContainers(t *testing.T) {
	for _, sized := range [][]string{{"app", "side", "zeta"}, {"app", "zeta"}, {"side", "zeta"}, {"app"}} {
		d := templateOf("500m", "1")
		for _, name := range []string{"side", "zeta"} {
			d.Spec.Template.Spec.Containers = slices.Insert(d.Spec.Template.Spec.Containers, 0, corev1.Container{Name: name, Image: name})
		}
		var sizes []plan.Size
		for _, name := range sized {
			sizes = append(sizes, cpuSize(name, 345, 1000))
		}
		got, _ := rewritten(t, d, nil, sizes...)
		if names := namesOf(got); !slices.Equal(names, []string{"zeta", "side", "app"}) {
			t.Errorf("%v is sized, and the containers are %v", sized, names)
		}
		for _, c := range got.Spec.Template.Spec.Containers {
			if want := slices.Contains(sized, c.Name); (c.Resources.Requests.Cpu().String() == "345m") != want {
				t.Errorf("%v is sized, and %s requests %s", sized, c.Name, c.Resources.Requests.Cpu())
			}
		}
	}
}

// A size leaves out a value that was not set originally. If the record of that was lost, the
// value stays.
func TestARewriteRemovesOnlyWhatIsOursAndRecorded(t *testing.T) {
	memory := plan.Size{Container: "app", Resources: workload.Resources{Requests: quantity.Amounts{MemoryBytes: 2 << 30}}}
	kept := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("2Gi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("1")},
	}
	removed := corev1.ResourceRequirements{Requests: corev1.ResourceList{"memory": resource.MustParse("2Gi")}}
	cases := map[string]struct {
		owned     string
		originals []plan.Original
		want      corev1.ResourceRequirements
		ours      []string
	}{
		"what has no record is kept": {
			allOfApp,
			[]plan.Original{{Container: "app", Memory: true}},
			kept,
			[]string{inApp + ".limits.cpu", inApp + ".requests.cpu", inApp + ".requests.memory"},
		},
		"what has a record is removed": {
			allOfApp, []plan.Original{{Container: "app", CPU: true, Memory: true}}, removed, []string{inApp + ".requests.memory"},
		},
		"what is not ours stays": {
			`{}`, []plan.Original{{Container: "app", CPU: true, Memory: true}}, kept, []string{inApp + ".requests.memory"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := templateOf("500m", "1")
			d.ManagedFields = []metav1.ManagedFieldsEntry{managed(ownership.Scalers, "", tc.owned)}
			got, ours := rewritten(t, d, tc.originals, memory)
			assert.Equal(t, "resources", tc.want, got.Spec.Template.Spec.Containers[0].Resources, cmpopts.EquateEmpty())
			assert.Equal(t, "owned", tc.ours, ours)
		})
	}
}
