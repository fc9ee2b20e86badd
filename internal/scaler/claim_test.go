// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// FuzzClaim reads claims that anyone with access to the status may have written. A claim of another
// namespace is never the scaler's own, and a recorded claim can be read.
func FuzzClaim(f *testing.F) {
	for _, claim := range []string{"shop/web", "other/web", "shop/../other/web", "shop/", "/web", "shop//web", "web", "", "shop/web\nother/web", "shop/web/", "shop"} {
		f.Add("shop", "web", claim)
	}
	f.Add("", "", "/")
	f.Fuzz(func(t *testing.T, namespace, name, claim string) {
		s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: name}}
		s.Status.Annotations = map[string]string{"kept": "yes", v1beta1.ClaimAnnotation: "old"}
		RecordClaim(&s.Status, claim)
		_, isSet := s.Status.Annotations[v1beta1.ClaimAnnotation]
		if got := RecordedClaim(s); got != claim || s.Status.Annotations["kept"] != "yes" || isSet != (claim != "") {
			t.Errorf("recorded %q, read %q: %v", claim, got, s.Status.Annotations)
		}
		if strings.Contains(namespace, "/") {
			return // no namespace has such a name
		}
		rest, isPrefixed := strings.CutPrefix(claim, namespace+"/")
		if want := isPrefixed && rest != "" && !strings.Contains(rest, "/"); IsOwnClaim(s, claim) != want {
			t.Errorf("claim %q of a scaler in %q: own is %t", claim, namespace, !want)
		}
		if name != "" && !strings.Contains(name, "/") && !IsOwnClaim(s, Claim(s)) {
			t.Errorf("the scaler's own claim %q is not its own", Claim(s))
		}
	})
}

// A user who sets the annotation wants a pause.
func TestPaused(t *testing.T) {
	const is = "The annotation autoscaling.verticalscaler.io/paused is set"
	for value, want := range map[string]string{
		"true": is, "": is, "incident": is + ": incident", "1": is + ": 1", "True": is + ": True", "False": is + ": False",
		"  incident\n42\t": is + ": incident 42", strings.Repeat("x", 5000): is + ": " + strings.Repeat("x", 256) + "...",
		"false": "",
	} {
		s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1beta1.PausedAnnotation: value}}}
		if IsPaused(s) != (want != "") {
			t.Errorf("%.20q pauses: %t", value, IsPaused(s))
		}
		if want != "" && PauseMessage(s, "") != want {
			t.Errorf("%.20q leads to %.120q", value, PauseMessage(s, ""))
		}
	}
	if IsPaused(&v1beta1.VerticalScaler{}) {
		t.Error("paused without the annotation")
	}
}
