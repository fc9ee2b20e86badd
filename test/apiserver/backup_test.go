// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apiserver

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// restore is the command without the file. The world's clock is ahead of the API server's, and so are the histories.
const restore = "restore --max-ahead=24h -f "

// learned creates a Deployment and a scaler, which size the pods by a high usage that then falls. Only the history tells
// why the pods keep their size. In the end, usage is not known any more.
func (w *fixture) learned(name string, changes ...func(*v1beta1.VerticalScaler)) *v1beta1.Recommendation {
	w.Helper()
	w.deploy(name)
	w.Uses(name, "app", 300, 240)
	w.scale(name, changes...)
	w.Sized(name)
	w.Uses(name, "app", 40, 60)
	w.Minutes(20)
	w.saved(name)
	w.forgetsUsage(name)
	return w.Scaler(name).Status.Recommendation
}

// forgetsUsage ends the usage, so that the recommendation stays as it is.
func (w *fixture) forgetsUsage(name string) {
	w.Helper()
	w.Usage.Err = errUnknown
	w.Says(name, "RecommendationProvided", "False", "MetricsUnavailable")
}

// errUnknown keeps the recommendation from changing: without usage, nothing is learned.
var errUnknown = errors.New("not known for the moment")

// saved lets time pass until the checkpoint of the scaler knows usage.
func (w *fixture) saved(name string) *v1beta1.VerticalScalerCheckpoint {
	w.Helper()
	c := &v1beta1.VerticalScalerCheckpoint{}
	w.eventually(func() string {
		if err := env.Client.Get(w.t.Context(), w.Key(name), c); err != nil {
			return err.Error()
		}
		if len(c.Spec.Containers) == 0 {
			return "the checkpoint has no container"
		}
		return ""
	})
	return c
}

// backedUp writes a backup of the namespace, and returns the file.
func (p plugin) backedUp() (file string) {
	p.Helper()
	file = filepath.Join(p.t.TempDir(), "backup.yaml")
	p.does("backup -o "+file, file+" written: ")
	return file
}

// targets are what a recommendation recommends, without the evidence, which grows.
func targets(r *v1beta1.Recommendation) (out []string) {
	if r == nil {
		return nil
	}
	for _, c := range r.ContainerRecommendations {
		out = append(out, fmt.Sprintf("%s: %s and %s", c.ContainerName, c.Target.CPU, c.Target.Memory))
	}
	return out
}

// continues fails unless the scaler recommends the same as before, and no pod is changed. When there is usage again, the
// memory that it has learned still counts.
func (w *fixture) continues(name string, before *v1beta1.Recommendation, pods map[types.UID]int64) {
	w.Helper()
	w.Minutes(10)
	if c := w.Condition(name, "Applied"); c.Status != metav1.ConditionTrue { // pods that have the size need no decision
		w.Errorf("Applied is %+v", c)
	}
	s := w.Scaler(name)
	if diff := cmp.Diff(targets(before), targets(s.Status.Recommendation)); diff != "" {
		w.Fatalf("another recommendation (-before +after):\n%s", diff)
	}
	for i, c := range s.Status.Recommendation.ContainerRecommendations {
		if was := before.ContainerRecommendations[i].ObservedSeconds; c.ObservedSeconds < was {
			w.Errorf("container %s has less evidence than before: %d s, not %d s", c.ContainerName, c.ObservedSeconds, was)
		}
	}
	if diff := cmp.Diff(pods, w.generations(name)); pods != nil && diff != "" {
		w.Errorf("pods were changed (-before +after):\n%s", diff)
	}
	if value, isSet := s.Annotations[v1beta1.PausedAnnotation]; isSet {
		w.Errorf("it is still paused: %s", value)
	}
	w.Usage.Err = nil
	w.Minutes(20)
	for i, c := range w.Scaler(name).Status.Recommendation.ContainerRecommendations {
		if was := before.ContainerRecommendations[i].Target.Memory; c.Target.Memory.Cmp(*was) != 0 {
			w.Errorf("with usage, container %s needs %s and not %s of memory", c.ContainerName, c.Target.Memory, was)
		}
	}
	w.forgetsUsage(name)
}

// generations are those of the Deployment's pods. Each resize raises one.
func (w *fixture) generations(name string) map[types.UID]int64 {
	w.Helper()
	out := map[types.UID]int64{}
	for _, pod := range w.Pods(name) {
		out[pod.UID] = pod.Generation
	}
	return out
}

// forgotten deletes the scaler, and what it has learned goes with it.
func (w *fixture) forgotten(name string) {
	w.Helper()
	w.Remove(testkit.Scaler(w.Namespace, name, ""))
	w.Gone(testkit.Scaler(w.Namespace, name, ""))
	w.Gone(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}})
}

func TestABackupRestoresADeletedScaler(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w)
	before := w.learned("web", func(s *v1beta1.VerticalScaler) {
		s.Labels, s.Annotations = map[string]string{"team": "shop"}, map[string]string{"example.com/note": "by hand"}
	})
	w.scale("new", func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "not-there-yet" })
	w.Settle()
	file, pods := p.backedUp(), w.generations("web")

	w.forgotten("web")
	w.forgotten("new")
	p.does(restore+file+" --dry-run", "VerticalScaler "+w.Namespace+"/web created, history of ", " of usage restored (server dry run)")
	p.does(restore + file + " --dry-run=client")
	if err := env.Client.Get(t.Context(), w.Key("web"), &v1beta1.VerticalScaler{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has created the scaler: %v", err)
	}
	p.does(restore+file, "VerticalScaler "+w.Namespace+"/web created, history of ", "VerticalScaler "+w.Namespace+"/new created, has no history in the backup")
	w.continues("web", before, pods)
	if s := w.Scaler("web"); s.Labels["team"] != "shop" || s.Annotations["example.com/note"] != "by hand" {
		t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
	}

	// Once more changes nothing.
	before, pods = w.Scaler("web").Status.Recommendation, w.generations("web")
	p.does(restore+file, "web ", "new has no history in the backup")
	w.continues("web", before, pods)
}

// A GitOps tool has created the scaler again, and the operator has learned for a while that the pods need little.
func TestARestoredHistoryIsLoadedWhileTheOperatorRuns(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w)
	before := w.learned("web")
	file := p.backedUp()
	w.forgotten("web")
	w.Usage.Err = nil
	w.scale("web", inMode(v1beta1.UpdateModeRecommend))
	w.saved("web")
	if r := w.Scaler("web").Status.Recommendation; cmp.Equal(targets(r), targets(before)) {
		t.Fatalf("the new scaler recommends %v", targets(r))
	}
	w.forgetsUsage("web")
	p.does(restore+file, "VerticalScaler "+w.Namespace+"/web history of ", "of usage restored; it had ")
	w.Minutes(10)
	if diff := cmp.Diff(targets(before), targets(w.Scaler("web").Status.Recommendation)); diff != "" {
		t.Errorf("another recommendation (-before +after):\n%s", diff)
	}
	// The history is in memory, and not only in the status.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"recommendation":null}}`))
	if err := env.Client.Status().Patch(t.Context(), testkit.Scaler(w.Namespace, "web", ""), patch); err != nil {
		t.Fatal(err)
	}
	w.Usage.Err = nil
	w.Says("web", "RecommendationProvided", "True", "EnoughHistory")
	r := w.Scaler("web").Status.Recommendation
	if is, was := r.ContainerRecommendations[0].Target.Memory, before.ContainerRecommendations[0].Target.Memory; is.Cmp(*was) < 0 {
		t.Errorf("memory is %s, not %s", is, was)
	}
	if mode := w.Scaler("web").Spec.UpdatePolicy.UpdateMode; mode != v1beta1.UpdateModeRecommend {
		t.Errorf("the spec of an existing scaler was changed: %s", mode)
	}
}

// All objects are deleted and created again. New pods start as in the template, and each is resized once, to the size
// from before.
func TestABackupRestoresARebuiltNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w)
	cart := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "cart"},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To(int32(3)), Template: testkit.Deployment(w.Namespace, "cart").Spec.Template,
			Scaling: &v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{
				UpdateMode: v1beta1.UpdateModeInPlace, CooldownSeconds: ptr.To(int32(0)), NewPods: v1beta1.NewPodsAsTemplate,
			}},
		},
	}
	w.create(cart)
	w.Settle()
	w.Uses("cart", "app", 300, 240)
	w.Sized("cart")
	w.saved("cart")
	before := w.learned("web")
	ofCart := w.Scaler("cart").Status.Recommendation
	file := p.backedUp()

	w.forgotten("web")
	w.Remove(testkit.Deployment(w.Namespace, "web"))
	w.Remove(cart)
	w.Gone(testkit.Scaler(w.Namespace, "cart", ""))
	if pods := len(w.Pods("web")) + len(w.Pods("cart")); pods > 0 {
		t.Fatalf("%d pods are left", pods)
	}
	w.Uses("cart", "app", 40, 60)
	w.deploy("web")
	// The operator does nothing before the command has ended.
	out, errOut, code := p.run(strings.Fields(restore + file + " --wait=1ms")...)
	if code != 1 || !strings.Contains(errOut, "/cart: ScaledDeployment cart has not created it: it was waited for. Run the command again once it has") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
	w.Settle()
	p.does(restore+file, "ScaledDeployment "+w.Namespace+"/cart exists, and is not changed", "/web has this history already", "/cart history of ")
	w.Sized("web")
	w.continues("web", before, nil)
	w.Sized("cart")
	w.continues("cart", ofCart, nil)
	for _, pod := range append(w.Pods("web"), w.Pods("cart")...) {
		if pod.Generation > 2 {
			t.Errorf("pod %s was resized %d times", pod.Name, pod.Generation-1)
		}
	}
}

func TestARestoreKeepsWhatHasLearnedMore(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w)
	w.learned("web")
	file := p.backedUp()
	old := w.saved("web")
	w.Usage.Err = nil
	w.Uses("web", "app", 60, 400) // A higher peak of memory is saved.
	w.eventually(func() string {
		if c := w.saved("web"); c.ResourceVersion == old.ResourceVersion {
			return "the checkpoint is still the one in the backup"
		}
		return ""
	})
	w.Sized("web")
	now := w.Scaler("web").Status.Recommendation
	p.does(restore+file, "VerticalScaler "+w.Namespace+"/web kept: it has learned from ")
	if w.Scaler("web").Annotations[v1beta1.RestoredAnnotation] != "" {
		t.Error("what was kept is announced as restored")
	}
	p.does(restore+file+" --overwrite", "/web history of ", "it had ")

	// The peak that the operator has seen itself still counts.
	w.Minutes(20)
	if was, is := now.ContainerRecommendations[0].Target.Memory, w.Scaler("web").Status.Recommendation.ContainerRecommendations[0].Target.Memory; is.Cmp(*was) < 0 {
		t.Errorf("memory fell from %s to %s", was, is)
	}
}
