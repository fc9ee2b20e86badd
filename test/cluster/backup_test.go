// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// restore is the command without the file. A round of usage counts as a minute, so histories are ahead of the clock.
const restore = "restore --max-ahead=24h -f "

// learned creates a Deployment and a scaler, which size the pods by a high usage that then falls. Only the history tells
// why the pods keep their size. In the end, usage is not
// known any more.
func (w *fixture) learned(name string, changes ...func(*v1beta1.VerticalScaler)) *v1beta1.Recommendation {
	w.Helper()
	w.deploy(name)
	w.uses(name, "app", 300, 240)
	w.scale(name, changes...)
	w.sized(name)
	w.uses(name, "app", 40, 60)
	w.rounds(20)
	w.saved(name)
	w.forgetsUsage(name)
	return w.scaler(name).Status.Recommendation
}

// forgetsUsage ends the usage, and waits until the scaler says so: its recommendation stays as it is.
func (w *fixture) forgetsUsage(name string) {
	w.Helper()
	w.usage.Fail(errUnknown)
	w.says(name, "RecommendationProvided", "False", "MetricsUnavailable")
}

// errUnknown keeps the recommendation from changing: without usage, nothing is learned.
var errUnknown = errors.New("not known for the moment")

// saved waits until the checkpoint of the scaler knows usage.
func (w *fixture) saved(name string) *v1beta1.VerticalScalerCheckpoint {
	w.Helper()
	c := &v1beta1.VerticalScalerCheckpoint{}
	w.eventually(func() string {
		if err := env.Client.Get(w.Context(), w.key(name), c); err != nil {
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
	file = filepath.Join(p.TempDir(), "backup.yaml")
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
	w.eventually(func() string {
		if c := w.condition(name, "Applied"); c.Status != metav1.ConditionTrue { // pods that have the size need no decision
			return fmt.Sprintf("Applied is %+v", c)
		}
		return ""
	})
	w.rounds(10)
	s := w.scaler(name)
	if diff := cmp.Diff(targets(before), targets(s.Status.Recommendation)); diff != "" {
		w.Errorf("another recommendation (-before +after):\n%s", diff)
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
	w.usage.Fail(nil)
	w.rounds(20)
	for i, c := range w.scaler(name).Status.Recommendation.ContainerRecommendations {
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
	for _, pod := range w.pods(name) {
		out[pod.UID] = pod.Generation
	}
	return out
}

// forgotten deletes the scaler, and waits until what was learned is gone with it.
func (w *fixture) forgotten(name string) {
	w.Helper()
	w.remove(testkit.Scaler(w.namespace, name, ""))
	w.gone(testkit.Scaler(w.namespace, name, ""))
	w.gone(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}})
}

func TestABackupRestoresADeletedScaler(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	before := w.learned("web", func(s *v1beta1.VerticalScaler) {
		s.Labels, s.Annotations = map[string]string{"team": "shop"}, map[string]string{"example.com/note": "by hand"}
	})
	w.scale("new", func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "not-there-yet" })
	file, pods := p.backedUp(), w.generations("web")

	w.forgotten("web")
	w.forgotten("new")
	p.does(restore+file+" --dry-run", "VerticalScaler "+w.namespace+"/web created, history of ", " of usage restored (server dry run)")
	p.does(restore + file + " --dry-run=client")
	if err := env.Client.Get(t.Context(), w.key("web"), &v1beta1.VerticalScaler{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has created the scaler: %v", err)
	}
	p.does(restore+file, "VerticalScaler "+w.namespace+"/web created, history of ", "VerticalScaler "+w.namespace+"/new created, has no history in the backup")
	w.continues("web", before, pods)
	if s := w.scaler("web"); s.Labels["team"] != "shop" || s.Annotations["example.com/note"] != "by hand" {
		t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
	}

	// Once more changes nothing.
	before, pods = w.scaler("web").Status.Recommendation, w.generations("web")
	p.does(restore+file, "web ", "new has no history in the backup")
	w.continues("web", before, pods)
}

// A GitOps tool has created the scaler again, and the operator has learned for a while that the pods need little.
func TestARestoredHistoryIsLoadedWhileTheOperatorRuns(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	before := w.learned("web")
	file := p.backedUp()
	w.forgotten("web")
	w.usage.Fail(nil)
	w.scale("web", inMode(v1beta1.UpdateModeRecommend))
	w.eventually(func() string {
		r := w.scaler("web").Status.Recommendation
		if r == nil || len(r.ContainerRecommendations) == 0 || cmp.Equal(targets(r), targets(before)) {
			return fmt.Sprintf("the new scaler recommends %v", targets(r))
		}
		return ""
	})
	w.saved("web")
	w.forgetsUsage("web")
	// Where this takes long, it has learned from more usage than the file has.
	p.does(restore+file+" --overwrite", "VerticalScaler "+w.namespace+"/web history of ", "of usage restored; it had ")
	w.rounds(10)
	if diff := cmp.Diff(targets(before), targets(w.scaler("web").Status.Recommendation)); diff != "" {
		t.Errorf("another recommendation (-before +after):\n%s", diff)
	}
	// The history is in memory, and not only in the status.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"recommendation":null}}`))
	if err := env.Client.Status().Patch(t.Context(), testkit.Scaler(w.namespace, "web", ""), patch); err != nil {
		t.Fatal(err)
	}
	w.usage.Fail(nil)
	w.eventually(func() string {
		r := w.scaler("web").Status.Recommendation
		if r == nil || len(r.ContainerRecommendations) == 0 {
			return "there is no recommendation"
		}
		if is, was := r.ContainerRecommendations[0].Target.Memory, before.ContainerRecommendations[0].Target.Memory; is.Cmp(*was) < 0 {
			return fmt.Sprintf("memory is %s, not %s", is, was)
		}
		return ""
	})
	if mode := w.scaler("web").Spec.UpdatePolicy.UpdateMode; mode != v1beta1.UpdateModeRecommend {
		t.Errorf("the spec of an existing scaler was changed: %s", mode)
	}
}

// The namespace is rebuilt. Its new pods start as in the template, and each is resized once, to the size from before.
func TestABackupRestoresARebuiltNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	owned := w.own("cart", scaled(v1beta1.UpdateModeInPlace))
	w.uses("cart", "app", 300, 240)
	w.sized("cart")
	w.saved("cart")
	before := w.learned("web")
	ofCart := w.scaler("cart").Status.Recommendation
	file := p.backedUp()

	var namespace corev1.Namespace
	if err := env.Client.Get(t.Context(), types.NamespacedName{Name: w.namespace}, &namespace); err != nil {
		t.Fatal(err)
	}
	w.remove(&namespace)
	w.gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	if _, errOut, code := p.run("restore", "--max-ahead=24h", "-f", file); code != 1 || !strings.Contains(errOut, "nothing was changed: namespace "+w.namespace+" does not exist: create it and its Deployments first") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: namespace.Labels}})
	w.eventually(func() string { return said(env.Client.Get(t.Context(), w.key("default"), &corev1.ServiceAccount{})) })
	w.uses("cart", "app", 40, 60)
	w.deploy("web")
	p.does(restore+file, "ScaledDeployment "+w.namespace+"/cart created", "/web created, history of ", "/cart history of ")
	w.sized("web")
	w.continues("web", before, nil)
	for _, pod := range w.pods("web") {
		if pod.Generation > 2 {
			t.Errorf("pod %s was resized %d times", pod.Name, pod.Generation-1)
		}
	}
	w.sized("cart")
	w.continues("cart", ofCart, nil)
	if o := w.owner("cart"); o.UID == owned.UID {
		t.Error("the ScaledDeployment is still the old one")
	}
}

func TestARestoreKeepsWhatHasLearnedMore(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	w.learned("web")
	file := p.backedUp()
	old := w.saved("web")
	w.usage.Fail(nil)
	w.uses("web", "app", 60, 400) // A higher peak of memory is saved.
	w.eventually(func() string {
		if c := w.saved("web"); c.ResourceVersion == old.ResourceVersion {
			return "the checkpoint is still the one in the backup"
		}
		return ""
	})
	w.sized("web")
	w.says("web", "Applied", "True", "Applied")
	now := w.scaler("web").Status.Recommendation
	p.does(restore+file, "VerticalScaler "+w.namespace+"/web kept: it has learned from ")
	if w.scaler("web").Annotations[v1beta1.RestoredAnnotation] != "" {
		t.Error("what was kept is announced as restored")
	}
	p.does(restore+file+" --overwrite", "/web history of ", "it had ")

	// The peak that the operator has seen itself still counts.
	w.rounds(20)
	if was, is := now.ContainerRecommendations[0].Target.Memory, w.scaler("web").Status.Recommendation.ContainerRecommendations[0].Target.Memory; is.Cmp(*was) < 0 {
		t.Errorf("memory fell from %s to %s", was, is)
	}
}

// The rights of a team are not enough to say what a scaler has learned, and nothing is changed then.
func TestOnlyAdministratorsRestore(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	p := newPlugin(w, env.Config)
	w.learned("web")
	file := p.backedUp()
	w.forgotten("web")
	u := w.user("dev-of-" + w.namespace)
	u.may("patch")
	u.grant(u.subject,
		rbacv1.PolicyRule{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/resize"}, Verbs: []string{"patch"}})
	u.eventually(func() string {
		_, errOut, code := p.run("restore", "--max-ahead=24h", "-f", file, "--as=dev-of-"+w.namespace)
		if code != 1 || !strings.Contains(errOut, "Only the operator writes checkpoints") || !strings.HasPrefix(errOut, "error: nothing was changed: ") {
			return fmt.Sprintf("exit code %d: %s", code, errOut)
		}
		return ""
	})
	if err := env.Client.Get(t.Context(), w.key("web"), &v1beta1.VerticalScaler{}); !apierrors.IsNotFound(err) {
		t.Errorf("the scaler: %v", err)
	}

	// A file that was cut off changes nothing, either.
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data[:len(data)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := p.run("restore", "--max-ahead=24h", "-f", file); code != 1 || !strings.Contains(errOut, "the checksum is wrong") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
