// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func amounts(cpu, memory string) (out v1beta1.Amounts) {
	if cpu != "" {
		q := resource.MustParse(cpu)
		out.CPU = &q
	}
	if memory != "" {
		q := resource.MustParse(memory)
		out.Memory = &q
	}
	return out
}

func TestLines(t *testing.T) {
	for want, sizes := range map[string][]v1beta1.NewPodContainer{
		"web/5 app,100m,64Mi,,128Mi;proxy,50m,,,": {
			{ContainerName: "app", Requests: amounts("100m", "64Mi"), Limits: amounts("", "128Mi")},
			{ContainerName: "proxy", Requests: amounts("50m", "")},
		},
		// With a startup boost.
		"web/5 app,300m,64Mi,600m,128Mi;proxy,90m,,,": {
			{ContainerName: "app", Requests: amounts("100m", "64Mi"), Limits: amounts("200m", "128Mi"), StartupRequests: amounts("300m", ""), StartupLimits: amounts("600m", "")},
			{ContainerName: "proxy", Requests: amounts("50m", ""), StartupRequests: amounts("90m", "")},
		},
		// As the API server writes them into pods.
		"web/5 app,1,1Gi,1,1Gi": {{ContainerName: "app", Requests: amounts("1000m", "1024Mi"), Limits: amounts("1.0", "1Gi")}},
		// The API server would reject a pod whose request is above its limit.
		"web/5 ok,1,,1,": {
			{ContainerName: "bad", Requests: amounts("2", "64Mi"), Limits: amounts("1", "64Mi")},
			{ContainerName: "worse", Requests: amounts("1", "65Mi"), Limits: amounts("1", "64Mi")},
			{ContainerName: "ok", Requests: amounts("1", ""), Limits: amounts("1", "")},
		},
		"": {{ContainerName: "app"}, {ContainerName: "bad", Requests: amounts("2", ""), Limits: amounts("1", "")}},
	} {
		if got := admission.Line("web", sizes); got != want {
			t.Errorf("Line() = %q, want %q", got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	lines := map[string]string{"web": "web/5 app,1,,,", "api": "api/5 app,2,,,", "cart": "cart/5 app,3,,,", "huge": "huge/5 " + strings.Repeat("c,1,,,;", 9)}
	for longest, want := range map[int][]string{
		300: {"\napi/5 app,2,,,\ncart/5 app,3,,,\n" + lines["huge"] + "\nweb/5 app,1,,,\n"},
		34:  {"\napi/5 app,2,,,\ncart/5 app,3,,,\n", "\nweb/5 app,1,,,\n"}, // without the one that fits nowhere
		17:  {"\napi/5 app,2,,,\n", "\ncart/5 app,3,,,\n", "\nweb/5 app,1,,,\n"},
		5:   nil,
	} {
		got := admission.Texts(lines, longest)
		assert.Equal(t, fmt.Sprintf("at most %d bytes", longest), want, got)
		for _, text := range got {
			if len(text) > longest {
				t.Errorf("a text of %d bytes, longest %d", len(text), longest)
			}
		}
	}
	if got := admission.Texts(nil, 100); got != nil {
		t.Errorf("no lines give %q", got)
	}
}

// A line is found by the whole of it: not by the name of another Deployment that ends or begins alike.
func TestHasLine(t *testing.T) {
	text := admission.Texts(map[string]string{"web": "web/5 app,1,,,", "web-2": "web-2/5 app,2,,,", "my-web": "my-web/5 app,3,,,"}, admission.MaxText)[0]
	for line, want := range map[string]bool{
		"web/5 app,1,,,": true, "web-2/5 app,2,,,": true, "my-web/5 app,3,,,": true,
		"web/5 app,2,,,": false, "web/5 app,1,,": false, "eb/5 app,1,,,": false, "-web/5 app,3,,,": false, "": false,
	} {
		if got := admission.HasLine(text, line); got != want {
			t.Errorf("HasLine(%q) = %t", line, got)
		}
	}
}

// In any mode but Initial, a line belongs to the ReplicaSet that has proved it.
func TestLinesOfAReplicaSet(t *testing.T) {
	n := v1beta1.NewPods{Containers: []v1beta1.NewPodContainer{{ContainerName: "app", Requests: amounts("1", "")}}}
	for want, tc := range map[string]struct {
		mode v1beta1.UpdateMode
		uid  types.UID
	}{"web/5 @uid-1;app,1,,,": {"InPlace", "uid-1"}, "web/5 @;app,1,,,": {"", ""}, "web/5 app,1,,,": {"Initial", ""}} {
		s := &v1beta1.VerticalScaler{}
		s.Spec.DeploymentName, s.Spec.UpdatePolicy.UpdateMode, n.ReplicaSetUID = "web", tc.mode, tc.uid
		if got := admission.LineOf(s, n); got != want {
			t.Errorf("LineOf() = %q, want %q", got, want)
		}
	}
	if got := admission.LineOf(&v1beta1.VerticalScaler{}, v1beta1.NewPods{ReplicaSetUID: "uid-1"}); got != "" {
		t.Errorf("LineOf() = %q without sizes", got)
	}
}

// The sizes may be in a cached status that all readers share.
func TestLinesLeaveTheSizesAlone(t *testing.T) {
	sizes := []v1beta1.NewPodContainer{{
		ContainerName: "app",
		Requests:      v1beta1.Amounts{CPU: resource.NewMilliQuantity(1500, resource.DecimalSI), Memory: resource.NewQuantity(1<<30, resource.BinarySI)},
		Limits:        v1beta1.Amounts{CPU: resource.NewMilliQuantity(3000, resource.DecimalSI), Memory: resource.NewQuantity(1<<31, resource.BinarySI)},
	}}
	before := []resource.Quantity{*sizes[0].Requests.CPU, *sizes[0].Requests.Memory, *sizes[0].Limits.CPU, *sizes[0].Limits.Memory}
	if got, want := admission.Line("web", sizes), "web/5 app,1500m,1Gi,3,2Gi"; got != want {
		t.Errorf("Line() = %q, want %q", got, want)
	}
	after := []resource.Quantity{*sizes[0].Requests.CPU, *sizes[0].Requests.Memory, *sizes[0].Limits.CPU, *sizes[0].Limits.Memory}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the sizes were %#v, and are %#v", before, after)
	}
}
