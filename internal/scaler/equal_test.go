// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Comparing these the usual way takes longer than any test may.
func TestAForgedStatusIsComparedInNoTime(t *testing.T) {
	forged := v1beta1.VerticalScalerStatus{Recommendation: &v1beta1.Recommendation{
		ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", Target: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("1e1999999999"))},
		}},
	}}
	ours := *forged.DeepCopy()
	ours.Recommendation.ContainerRecommendations[0].Target.CPU = ptr.To(resource.MustParse("100m"))
	if EqualStatus(forged, ours) || EqualStatus(forged, *forged.DeepCopy()) {
		t.Error("a forged amount is the same as ours")
	}
	if !EqualStatus(ours, *ours.DeepCopy()) {
		t.Error("a status is not the same as its copy")
	}
	if got := PublishedRecommendation(forged.Recommendation, "app"); got.Target.CPUMillis != 0 {
		t.Errorf("a forged amount is read as %d", got.Target.CPUMillis)
	}
}

// Each field counts, also one that is added to the API later: a difference that is not seen would never
// be written.
func TestEachFieldOfAStatusIsCompared(t *testing.T) {
	full := func() (status v1beta1.VerticalScalerStatus) {
		fill(reflect.ValueOf(&status).Elem())
		return status
	}
	if a, b := full(), full(); !EqualStatus(a, b) {
		t.Fatal("two equal statuses differ")
	}
	leaves := 0
	for {
		changed, remaining := full(), leaves
		field := changeLeaf(reflect.ValueOf(&changed).Elem(), "status", &remaining)
		if field == "" {
			break
		}
		if EqualStatus(full(), changed) || EqualStatus(changed, full()) {
			t.Errorf("a change of %s is not seen", field)
		}
		leaves++
	}
	if leaves < 80 {
		t.Errorf("only %d fields were changed", leaves)
	}
}

// fill sets each field of a value to something.
func fill(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*value = resource.MustParse("250m")
		return
	case *metav1.Time:
		value.Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": "value"}))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(7)
	}
}

// changeLeaf changes the n-th of the values that can differ on their own, and returns its path; empty if
// there are fewer. It counts n down.
func changeLeaf(v reflect.Value, path string, n *int) string {
	take := func() bool { *n--; return *n == -1 }
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		if take() {
			*value = resource.MustParse("251m")
			return path
		}
		return ""
	case *metav1.Time:
		if take() {
			value.Time = value.Add(time.Second)
			return path
		}
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer:
		if take() {
			v.SetZero()
			return path
		}
		return changeLeaf(v.Elem(), path, n)
	case reflect.Struct:
		for i := range v.NumField() {
			if changed := changeLeaf(v.Field(i), path+"."+v.Type().Field(i).Name, n); changed != "" {
				return changed
			}
		}
		return ""
	case reflect.Slice:
		if take() {
			v.Set(v.Slice(0, 1))
			return path
		}
		return changeLeaf(v.Index(1), path+"[1]", n)
	}
	if !take() {
		return ""
	}
	switch v.Kind() {
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": "other"}))
	case reflect.String:
		v.SetString("other")
	case reflect.Bool:
		v.SetBool(false)
	default:
		v.SetInt(8)
	}
	return path
}

// Another zone, and another notation of an amount, are the same.
func TestStatusesAreComparedByMeaning(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ours := v1beta1.VerticalScalerStatus{
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, LastTransitionTime: metav1.NewTime(at)}},
		Decision:   &v1beta1.Decision{Time: metav1.NewTime(at), Containers: []v1beta1.ContainerDecision{{Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("1500m"))}}}},
	}
	theirs := *ours.DeepCopy()
	theirs.Conditions[0].LastTransitionTime = metav1.NewTime(at.In(time.FixedZone("", 3600)))
	theirs.Decision.Containers[0].Requests.CPU = ptr.To(resource.MustParse("1.5"))
	theirs.History, theirs.Annotations = []v1beta1.HistoryEntry{}, map[string]string{}
	if !EqualStatus(ours, theirs) {
		t.Error("the same in another notation differs")
	}
}
