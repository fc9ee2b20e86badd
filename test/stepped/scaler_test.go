// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestTheCheckpointPreservesTheHistory(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Usage.Even = true // how uneven the pods are is still being learned when the checkpoint is written
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	w.Sized("web")
	w.Minutes(4) // the checkpoint that is written with the first recommendation lacks the CPU of its last minutes
	var checkpoint v1beta1.VerticalScalerCheckpoint
	must.Succeed(t, w.Client.Get(t.Context(), w.Key("web"), &checkpoint))
	s := w.Scaler("web")
	if len(checkpoint.OwnerReferences) != 1 || checkpoint.OwnerReferences[0].UID != s.UID || checkpoint.OwnerReferences[0].Kind != "VerticalScaler" || checkpoint.Spec.DeploymentName != "web" {
		t.Errorf("owners %+v, Deployment %q", checkpoint.OwnerReferences, checkpoint.Spec.DeploymentName)
	}

	// No more usage arrives, and the status holds no values to start from.
	w.Usage.Err = errors.New("no more usage")
	w.Reports("web", "RecommendationProvided", "False", "MetricsUnavailable")
	before := w.Scaler("web").Status.Recommendation
	w.Stop()
	w.wipe("web")
	w.Start()
	w.Minutes(1)
	after := w.Scaler("web").Status.Recommendation
	if after == nil {
		t.Fatal("there is no recommendation")
	}
	// The operator writes a checkpoint when the observed time has doubled. A restart may
	// lose up to half of that time, and the confidence that the bounds rest on. It does not
	// lose any of the values.
	x, y := before.ContainerRecommendations[0], after.ContainerRecommendations[0]
	if 2*y.ObservedSeconds < x.ObservedSeconds {
		t.Errorf("%d s of evidence before the restart, %d s after", x.ObservedSeconds, y.ObservedSeconds)
	}
	for _, c := range []*v1beta1.ContainerRecommendation{&x, &y} {
		c.ObservedSeconds, c.LowerBound, c.UpperBound = 0, v1beta1.Amounts{}, v1beta1.Amounts{}
	}
	if !equality.Semantic.DeepEqual(x, y) {
		t.Errorf("recommended before the restart\n%+v\nand after\n%+v", x, y)
	}

	w.Remove(s)
	w.Gone(s)
	w.Gone(&checkpoint)
}

func TestARecreatedDeploymentInheritsTheHistory(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	old := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	before := w.Sized("web")
	w.Remove(old)
	w.Gone(old)
	w.Reports("web", "TargetFound", "False", "DeploymentNotFound", w.Namespace+"/web")
	w.Reports("web", "Ready", "True", "DeploymentNotFound")
	if s := w.Scaler("web"); s.Status.Decision != nil || s.Status.Target != nil {
		t.Errorf("the decision %+v and the target %+v outlive the Deployment", s.Status.Decision, s.Status.Target)
	}
	w.Usage.Err = errors.New("no more usage")
	recreated := w.deploy("web")
	after := w.Sized("web")
	if after.Cpu().Cmp(*before.Cpu()) != 0 || after.Memory().Cmp(*before.Memory()) != 0 {
		t.Errorf("requests were %v and are %v", before, after)
	}
	if s := w.Scaler("web"); s.Status.Target == nil || s.Status.Target.UID != recreated.UID {
		t.Errorf("target: %+v", s.Status.Target)
	}
}

func TestAScalerDeletedHalfWayLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Kubelet.Script("web", w.Kubelet.Ordinal(&w.Pods("web")[0]), world.Deferred) // the other pods wait
	w.Scale("web")
	w.Reports("web", "Applied", "False", "Deferred")
	if n := count(w.Writes(), "pods/resize"); len(n) != 1 {
		t.Fatalf("resizes by pod: %v", n)
	}
	s := w.Scaler("web")
	w.Remove(s)
	w.Gone(s)
	w.Gone(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}})
	mark := w.mark()
	victim := w.Pods("web")[0]
	w.Remove(&victim)
	w.Gone(&victim)
	w.runs("web")
	if writes := w.writes(mark); len(writes) > 0 {
		t.Errorf("written after the end: %v", writes)
	}
	// A new scaler with the same name does not inherit its state.
	w.Scale("web", world.InMode("Recommend"))
	w.Reports("web", "Applied", "False", "RecommendOnly")
	if got := w.Scaler("web").Status; got.Decision != nil || len(got.History) > 0 {
		t.Errorf("decision %+v, history %+v", got.Decision, got.History)
	}
}
