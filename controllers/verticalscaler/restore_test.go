// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// managed is an entry of managedFields with resources of container app.
func managed(manager, subresource, resources string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Subresource: subresource, Operation: "Apply",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:name":{},"f:resources":` + resources + `}}}}}}`),
	}
}

// ownedFields is the set of our fields of container app.
func ownedFields(t *testing.T, entries ...metav1.ManagedFieldsEntry) *fieldpath.Set {
	t.Helper()
	owned, err := ownership.Of(entries, ownership.Scalers)
	must.Succeed(t, err)
	return owned
}

const (
	allOfApp   = `{"f:requests":{"f:cpu":{},"f:memory":{}},"f:limits":{"f:cpu":{},"f:memory":{}}}`
	cpuRequest = `{"f:requests":{"f:cpu":{}}}`
	cpuLimit   = `{"f:limits":{"f:cpu":{}}}`
)

func TestRestorePatch(t *testing.T) {
	quantities := func(cpu, memory string) v1beta1.Amounts {
		a := v1beta1.Amounts{}
		if cpu != "" {
			a.CPU = ptr.To(resource.MustParse(cpu))
		}
		if memory != "" {
			a.Memory = ptr.To(resource.MustParse(memory))
		}
		return a
	}
	held := func(requests, limits v1beta1.Amounts) []v1beta1.OriginalContainerResources {
		return []v1beta1.OriginalContainerResources{{ContainerName: "app", Requests: requests, Limits: limits}}
	}
	const around = `{"metadata":{"resourceVersion":"8","uid":"uid"},"spec":{"template":{"spec":{"containers":[{"name":"app","resources":%RESOURCES%}]}}}}`
	cases := map[string]struct {
		owned string
		held  []v1beta1.OriginalContainerResources
		want  string
	}{
		"everything is restored": {
			allOfApp, held(quantities("100m", "128Mi"), quantities("200m", "256Mi")),
			`{"limits":{"cpu":"200m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}}`,
		},
		"what was not set is removed": {
			allOfApp, held(quantities("100m", "0"), quantities("0", "0")),
			`{"limits":{"cpu":null,"memory":null},"requests":{"cpu":"100m","memory":null}}`,
		},
		"what was not taken is left alone": {
			allOfApp, held(quantities("100m", ""), quantities("200m", "")),
			`{"limits":{"cpu":"200m"},"requests":{"cpu":"100m"}}`,
		},
		"what another field manager has taken over stays": {
			cpuRequest, held(quantities("100m", "128Mi"), quantities("200m", "256Mi")),
			`{"requests":{"cpu":"100m"}}`,
		},
		"nothing is restored if nothing is ours": {`{}`, held(quantities("100m", "128Mi"), quantities("200m", "256Mi")), ""},
		"a request goes with the limit that another field manager has set since": {
			cpuRequest, held(quantities("2", ""), quantities("3", "")), // the template's limit is 1
			`{"requests":{"cpu":"1"}}`,
		},
		"a limit goes with the request that another field manager has set since": {
			cpuLimit, held(quantities("100m", ""), quantities("200m", "")), // the template's request is 500m
			`{"limits":{"cpu":"500m"}}`,
		},
		"a forged pair is put right": {
			allOfApp, held(quantities("900m", ""), quantities("300m", "")),
			`{"limits":{"cpu":"300m"},"requests":{"cpu":"300m"}}`,
		},
		"values that no template can have are not restored": {
			allOfApp, held(quantities("1e999", "-1"), quantities("300", "1e19")),
			`{"limits":{"cpu":"300"}}`,
		},
		"more cores than any template can have are not restored": {
			allOfApp, held(quantities("1e9", ""), quantities("300", "")),
			`{"limits":{"cpu":"300"}}`,
		},
		"a container that is gone is gone": {allOfApp, []v1beta1.OriginalContainerResources{{ContainerName: "old", Requests: quantities("1", "")}}, ""},
		"nothing held":                     {allOfApp, nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := ""
			if tc.want != "" {
				want = around[:len(around)-len("%RESOURCES%}]}}}}")] + tc.want + "}]}}}}"
			}
			got := restorePatch(templateOf("500m", "1"), &v1beta1.OriginalResources{Containers: tc.held}, ownedFields(t, managed("verticalscaler", "", tc.owned)))
			assert.Equal(t, "restorePatch()", want, string(got))
		})
	}
}

// templateOf is a Deployment whose container app has a CPU request and a CPU limit.
func templateOf(request, limit string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "8"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(request), "memory": resource.MustParse("1Gi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse(limit)},
	}}}
	return d
}

// patchedBy is the Deployment as the API server has it after a strategic merge patch.
func patchedBy(t *testing.T, d *appsv1.Deployment, patch []byte) (patched appsv1.Deployment) {
	t.Helper()
	content, err := json.Marshal(d)
	must.Succeed(t, err)
	if content, err = strategicpatch.StrategicMergePatch(content, patch, appsv1.Deployment{}); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, json.Unmarshal(content, &patched))
	return patched
}

func namesOf(d appsv1.Deployment) (names []string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
