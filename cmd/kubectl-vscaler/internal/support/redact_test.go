// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Of an object in which each field is set, only the listed fields are left. The golden file names each
// field that holds text: read its difference before you commit it.
func TestOnlyListedFieldsAreKept(t *testing.T) {
	var all []string
	for _, object := range []any{
		&appsv1.Deployment{}, &corev1.Pod{}, &v1beta1.ScaledDeployment{}, &v1beta1.ScalingPolicy{}, &v1beta1.ClusterScalingPolicy{}, &autoscalingv2.HorizontalPodAutoscaler{}, &corev1.LimitRange{},
		&corev1.ResourceQuota{}, &coordinationv1.Lease{}, &corev1.Event{},
	} {
		value := reflect.ValueOf(object).Elem()
		kind := value.Type().Name()
		fill(value, 0)
		value.FieldByName("Kind").SetString(kind)
		text, err := json.Marshal(object)
		must.Succeed(t, err)
		var decoded map[string]any
		must.Succeed(t, json.Unmarshal(text, &decoded))
		before := len(paths("", decoded))
		left := paths(kind, redactedObject(decoded))
		if len(left) == 0 || len(left) >= before {
			t.Errorf("%s keeps %d of %d texts", kind, len(left), before)
		}
		all = append(all, left...)
	}
	got := strings.Join(slices.Compact(all), "\n") + "\n"
	golden.Compare(t, "kept.txt", got)
	for _, never := range []string{".env", ".command", ".args", ".image", "volume", "Secrets", "labels", "nodeName", ".host", "IP", "annotations", "fieldsV1", "lastTransitionTime.x"} {
		if strings.Contains(got, never) {
			t.Errorf("%s is kept", never)
		}
	}
}

// fill sets all fields, and strings to a canary.
func fill(v reflect.Value, depth int) {
	if depth > 24 {
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("1")))
	case v.Type() == reflect.TypeFor[metav1.Time](), v.Type() == reflect.TypeFor[metav1.MicroTime](), v.Type() == reflect.TypeFor[metav1.FieldsV1]():
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString("canary")
		fill(value, depth+1)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.String:
		v.SetString("canary")
	case v.CanInt():
		v.SetInt(1)
	}
}

// paths are the fields that hold text, sorted.
func paths(at string, value any) (out []string) {
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			out = append(out, paths(at+"."+name, below)...)
		}
	case []any:
		for _, below := range v {
			out = append(out, paths(at, below)...)
		}
	case string:
		out = append(out, at)
	}
	slices.Sort(out)
	return out
}

func TestOtherKindsAreLeftOut(t *testing.T) {
	for _, kind := range []string{"Secret", "ConfigMap", ""} {
		if got := redactedObject(map[string]any{"kind": kind, "metadata": map[string]any{"name": "x"}}); got != nil {
			t.Errorf("%q: %v", kind, got)
		}
	}
	strange := map[string]any{"kind": "Pod", "metadata": "text", "spec": []any{"text", 1}, "status": nil}
	if got := fmt.Sprint(redactedObject(strange)); got != "map[kind:Pod spec:[]]" {
		t.Errorf("%s", got)
	}
}

func TestOnlyOurAnnotationsAreKept(t *testing.T) {
	object := map[string]any{"kind": "Pod", "metadata": map[string]any{"annotations": map[string]any{
		"autoscaling.verticalscaler.io/paused": "incident 42", "kubectl.kubernetes.io/last-applied-configuration": "canary",
	}}}
	got := redactedObject(object)["metadata"].(map[string]any)["annotations"]
	if diff := cmp.Diff(any(map[string]any{"autoscaling.verticalscaler.io/paused": "incident 42"}), got); diff != "" {
		t.Error(diff)
	}
}

// Programs, kubelets and webhooks write messages of events: "Liveness probe failed: login with password hunter2". The operator
// writes those about its own kinds.
func TestMessagesOfEventsAboutOtherKindsAreLeftOut(t *testing.T) {
	for kind, want := range map[string]string{
		"VerticalScaler": "Evicted pod web-1", "ScaledDeployment": "Evicted pod web-1", "ScalingPolicy": "Evicted pod web-1", "ClusterScalingPolicy": "Evicted pod web-1",
		"Pod": "", "Deployment": "", "ReplicaSet": "", "": "",
	} {
		got := redactedObject(map[string]any{"kind": "Event", "involvedObject": map[string]any{"kind": kind}, "reason": "Unhealthy", "message": "Evicted pod web-1"})
		if message, _ := got["message"].(string); message != want || got["reason"] != "Unhealthy" {
			t.Errorf("event about a %s: %v, want the message %q", kind, got, want)
		}
	}
}

func TestAddressesAreMasked(t *testing.T) {
	for text, want := range map[string]string{
		"Deployment shop/web: 500m->310m at 12:34:56": "Deployment shop/web: 500m->310m at 12:34:56",
		"dial tcp 10.0.0.7:443: refused":              "dial tcp [masked]:443: refused",
		"dial tcp [2001:db8::7]:443: refused":         "dial tcp [[masked]]:443: refused",
	} {
		if got := masked(text); got != want || masked(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
