// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// newPodSize is the plan's size of new pods in these tests.
var newPodSize = []plan.Size{{Container: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 100}}}}

// withUpdate is a scaler with that update policy, whose new pods get the plan's sizes.
func withUpdate(update v1beta1.UpdatePolicy) *v1beta1.VerticalScaler {
	return checkout(func(s *v1beta1.VerticalScaler) {
		s.Spec.UpdatePolicy = update
		s.Status.NewPods = scaler.APINewPods(plan.NewPods{Sizes: newPodSize})
		scaler.RecordClaim(&s.Status, scaler.Claim(s))
	})
}

var (
	inPlace  = v1beta1.UpdatePolicy{UpdateMode: "InPlace", NewPods: "Sized"}
	atFirst  = v1beta1.UpdatePolicy{UpdateMode: "Initial"}
	evicting = v1beta1.UpdatePolicy{UpdateMode: "InPlace", Fallback: "Recreate"}
)

// sizing is a reconcile that has come as far as a plan: of a pod that has the size that is decided.
func sizing(vs *v1beta1.VerticalScaler) *scope {
	app := workload.Container{Name: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 50}}}
	sized := workload.Container{Name: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 100}}}
	pod := runningPod("web-1", sized)
	pod.Actual = workload.Reported{}.With("app", sized.Resources)
	s := &scope{scaler: vs, now: noon, status: *vs.Status.DeepCopy()}
	s.observation.deployment = &appsv1.Deployment{}
	s.observation.situation = plan.Situation{
		Deployment: workload.Deployment{Replicas: 1, Containers: []workload.Container{app}}, Pods: []workload.Pod{pod},
		Decision: &plan.Decision{Reason: plan.DecidedScaleUp, Requests: map[string]quantity.Amounts{"app": {CPUMillis: 100}}},
		NewPods:  scaler.NewPods(vs.Status.NewPods),
	}
	s.replan()
	return s
}

func (s *scope) replan() {
	s.policy = scaler.PlanPolicy(s.scaler, s.observation.situation.Deployment)
	s.plan = plan.Next(s.observation.situation, s.policy, s.now)
}

// decide runs the phases that lead to the plan.
func (r *Reconciler) decide(t *testing.T, s *scope) {
	t.Helper()
	for _, run := range []phase{r.observePermission, r.plan} {
		if _, err := run(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// hold makes the scaler keep the recorded sizes.
func (s *scope) hold() {
	s.scaler.Spec.Suspend = true
	s.replan()
}

// apiServer is a reconciler whose API server has these objects.
func apiServer(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Reconciler {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(watchedScheme(t)).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return &Reconciler{Client: c, Live: c, ResyncPeriod: 10 * time.Minute, NewPodsRefused: notRefused}
}

func sizes(text string) *v1beta1.NewPodSizes {
	return &v1beta1.NewPodSizes{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1beta1.NewPodSizesName}, Spec: v1beta1.NewPodSizesSpec{Deployments: text}}
}

func TestWithoutThePolicyForNewPods(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  error
		reason  string
		message string
	}{
		"not installed": {apierrors.NewNotFound(schema.GroupResource{}, "x"), "AdmissionUnavailable", "kubectl apply --server-side -f https://"},
		"no such kind":  {&meta.NoKindMatchError{}, "AdmissionUnavailable", "Kubernetes 1.36"},
		"no such right": {apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no right")), "Rejected", "may not read"},
	} {
		r := apiServer(t, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return tc.answer
		}})
		s := sizing(withUpdate(atFirst))
		r.decide(t, s)
		if c, _ := newPodsSized(s); recordedNewPods(s) != nil || c.Status != "False" || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) || s.requeueAfter != unavailableRetry {
			t.Errorf("%s: new pods get %+v, %s is %s, %s: %s, again in %s", name, recordedNewPods(s), c.Type, c.Status, c.Reason, c.Message, s.requeueAfter)
		}
	}
}

// Where the operator may evict, a scaler that names no fallback has Recreate, if its new pods get their size.
func TestTheFallbackOfAScalerThatNamesNone(t *testing.T) {
	for name, tc := range map[string]struct {
		update v1beta1.UpdatePolicy
		answer error
		want   v1beta1.Fallback
	}{
		"none":                         {v1beta1.UpdatePolicy{}, nil, "Recreate"},
		"one":                          {v1beta1.UpdatePolicy{Fallback: "Wait"}, nil, "Wait"},
		"new pods are to be unsized":   {v1beta1.UpdatePolicy{NewPods: "AsTemplate"}, nil, "Wait"},
		"no policy sizes new pods":     {v1beta1.UpdatePolicy{}, apierrors.NewNotFound(schema.GroupResource{}, "x"), "Wait"},
		"Recreate without that policy": {v1beta1.UpdatePolicy{Fallback: "Recreate"}, apierrors.NewNotFound(schema.GroupResource{}, "x"), "Recreate"},
	} {
		r := apiServer(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if tc.answer != nil {
				return tc.answer
			}
			return c.Get(ctx, key, into, options...)
		}}, admission.Policy(), admission.Binding(), sizes("\ncheckout/5 @;app,100m,,,\n"))
		r.Fallback = v1beta1.FallbackRecreate
		s := sizing(withUpdate(tc.update))
		s.policy = r.policyOf(s.scaler, s.observation.situation.Deployment)
		r.decide(t, s)
		if s.policy.Fallback != tc.want {
			t.Errorf("%s: the fallback is %s, want %s", name, s.policy.Fallback, tc.want)
		}
	}
}

// While writes of the NewPodSizes object are rejected, the condition reports how new pods start.
func TestSizesThatCannotBeWrittenDown(t *testing.T) {
	refused := func(namespace string) apierror.Rejection {
		return apierror.Rejection{Reason: v1beta1.ReasonQuotaExceeded, Message: "exceeded quota in " + namespace}
	}
	accepted := func(string) apierror.Rejection { return apierror.Rejection{} }
	line := admission.LineOf(withUpdate(inPlace), *scaler.APINewPods(plan.NewPods{Sizes: newPodSize}))
	nothingSized := func(s *scope) { s.plan.NewPods = plan.NewPods{} }
	for name, tc := range map[string]struct {
		refused func(string) apierror.Rejection
		written string
		change  func(*scope)
		want    string
		message string
	}{
		"refused":                          {refused, "\nother/5 app,1,,,\n", nil, "False QuotaExceeded", "previous size or start as in the pod template"},
		"refused before a freeze":          {refused, "\nother/5 app,1,,,\n", (*scope).hold, "False QuotaExceeded", "exceeded quota in shop"},
		"refused, and written before":      {refused, "\n" + line + "\n", nil, "True Applied", "until its pods are healthy with them"},
		"not written yet, and not refused": {accepted, "\n", nil, "True Applied", ""},
		"not removed":                      {refused, "\nother/5 app,1,,,\ncheckout/5 app,9,,,\n", nothingSized, "False QuotaExceeded", "size that no longer applies"},
		"not removed yet, and not refused": {accepted, "\ncheckout/5 app,9,,,\n", nothingSized, " ", ""},
		"removed before":                   {refused, "\ncheckout-2/5 app,9,,,\n", nothingSized, " ", ""},
		"not removed, and turned off": {refused, "\ncheckout/5 app,9,,,\n", func(s *scope) {
			s.scaler.Spec.UpdatePolicy.NewPods = v1beta1.NewPodsAsTemplate
			s.replan()
		}, "False QuotaExceeded", "size that no longer applies"},
		"of the scaler before it": {refused, "\ncheckout/5 app,9,,,\n", func(s *scope) {
			s.scaler.Spec.UpdatePolicy.NewPods = v1beta1.NewPodsAsTemplate
			s.standing = precedence.Standing{Winner: "first"}
		}, " ", ""},
	} {
		r := apiServer(t, interceptor.Funcs{}, admission.Policy(), admission.Binding(), sizes(tc.written))
		r.NewPodsRefused = tc.refused
		s := sizing(withUpdate(inPlace))
		if tc.change != nil {
			tc.change(s)
		}
		must.Succeed(t, r.noteUnpublished(t.Context(), s))
		c, _ := newPodsSized(s)
		if got := string(c.Status) + " " + c.Reason; got != tc.want || !strings.Contains(c.Message, tc.message) {
			t.Errorf("%s: %s: %s, want %s: %s", name, got, c.Message, tc.want, tc.message)
		}
	}
}

// An eviction waits for sizes that are about to be written. While they are rejected, only the end of the rejection
// triggers a reconcile, and during a freeze only its end.
func TestRejectedSizesAreNotPolled(t *testing.T) {
	for name, tc := range map[string]struct {
		rejected, frozen string
		want             time.Duration
	}{
		"accepted": {want: publishRetry}, "rejected": {rejected: v1beta1.ReasonQuotaExceeded}, "frozen": {frozen: v1beta1.ReasonFrozen},
	} {
		r := apiServer(t, interceptor.Funcs{}, admission.Policy(), admission.Binding())
		r.NewPodsRefused = func(string) apierror.Rejection { return apierror.Rejection{Reason: tc.rejected} }
		s := sizing(withUpdate(evicting))
		s.observation.situation.Frozen = plan.Obstacle{Reason: tc.frozen, Message: tc.frozen}
		r.decide(t, s)
		if s.requeueAfter != tc.want {
			t.Errorf("%s: again in %s, want %s", name, s.requeueAfter, tc.want)
		}
	}
}

// All scalers share one answer: it costs two requests in ten minutes, and one in half a minute while nothing is
// installed.
func TestScalersShareTheAnswer(t *testing.T) {
	var asked int
	count := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		asked++
		return c.Get(ctx, key, o, options...)
	}}
	for name, tc := range map[string]struct {
		objects []client.Object
		want    []int // requests at first, 20 seconds, 40 seconds and 15 minutes later
	}{
		"installed":     {[]client.Object{admission.Policy(), admission.Binding()}, []int{2, 2, 2, 4}},
		"not installed": {nil, []int{1, 1, 2, 3}},
	} {
		asked = 0
		r := apiServer(t, count, tc.objects...)
		for i, later := range []time.Duration{0, 20 * time.Second, 40 * time.Second, 15 * time.Minute} {
			for range 100 {
				s := sizing(withUpdate(inPlace))
				s.now = noon.Add(later)
				r.decide(t, s)
			}
			if asked != tc.want[i] {
				t.Errorf("%s, after %s: %d requests, want %d", name, later, asked, tc.want[i])
			}
		}
	}
}

// refusePods lets the API server refuse pods with the recorded size.
func (s *scope) refusePods() {
	s.observation.situation.Deployment.CreateFailure = "exceeded quota: team"
	s.hold()
}

// The status records other sizes than the plan in a suspension, after another claim or an error.
func TestRecordedNewPods(t *testing.T) {
	before := scaler.APINewPods(plan.NewPods{Sizes: []plan.Size{{Container: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 90}}}}})
	for name, tc := range map[string]struct {
		change func(*scope)
		want   string
	}{
		"as planned":                      {func(*scope) {}, "100m"},
		"nothing planned":                 {func(s *scope) { s.plan.NewPods = plan.NewPods{} }, ""},
		"suspended":                       {(*scope).hold, "90m"},
		"failed before a plan":            {func(s *scope) { s.err, s.plan = errors.New("down"), plan.Plan{} }, "90m"},
		"suspended, and pods are refused": {(*scope).refusePods, "as in the template"},
		"of the Deployment before, suspended": {func(s *scope) {
			s.scaler.Spec.DeploymentName = "another"
			s.hold()
		}, ""},
		"of the Deployment before, failed": {func(s *scope) {
			s.err, s.plan, s.scaler.Spec.DeploymentName = errors.New("down"), plan.Plan{}, "another"
		}, ""},
		"suspended behind another scaler": {func(s *scope) {
			s.standing.Winner = "older"
			s.hold()
		}, ""},
	} {
		vs := withUpdate(inPlace)
		vs.Status.NewPods = before
		s := sizing(vs)
		tc.change(s)
		got := ""
		if recorded := recordedNewPods(s); recorded != nil {
			got = "as in the template"
			for _, c := range recorded.Containers {
				got = c.Requests.CPU.String()
			}
		}
		if got != tc.want {
			t.Errorf("%s: new pods get %q, want %q", name, got, tc.want)
		}
	}
}

// While nothing may change, new pods keep the recorded sizes, unless the mode sizes none. A pause keeps it in any mode.
func TestWhoseRecordedSizesNewPodsKeep(t *testing.T) {
	paused := map[string]string{v1beta1.PausedAnnotation: "true"}
	for name, tc := range map[string]struct {
		mode        v1beta1.UpdateMode
		newPods     v1beta1.NewPodPolicy
		annotations map[string]string
		want        bool
	}{
		"sized":                {"InPlace", "Sized", nil, true},
		"left as the template": {"InPlace", "AsTemplate", nil, false},
		"only recommends":      {"Recommend", "Sized", nil, false},
		"paused, recommends":   {"Recommend", "Sized", paused, true},
	} {
		vs := withUpdate(v1beta1.UpdatePolicy{UpdateMode: tc.mode, NewPods: tc.newPods})
		vs.Annotations = tc.annotations
		var situation plan.Situation
		new(Reconciler).addRecorded(&scope{scaler: vs}, &situation)
		if got := len(situation.NewPods.Sizes) > 0; got != tc.want {
			t.Errorf("%s: new pods keep %+v", name, situation.NewPods)
		}
	}
}

// No pod is evicted unless the policy, its binding and the size are there, and the API server is asked again before.
func TestAnEvictionNeedsTheSizeOfTheNextPod(t *testing.T) {
	const line = "\ncheckout/5 @;app,100m,,,\n"
	both := []client.Object{admission.Policy(), admission.Binding()}
	for name, tc := range map[string]struct {
		objects []client.Object
		evicts  bool
	}{
		"all is there":        {append(both[:2:2], sizes(line)), true},
		"the size is gone":    {both, false},
		"it is another one":   {append(both[:2:2], sizes("\ncheckout/5 @;app,200m,,,\n")), false},
		"the policy is gone":  {[]client.Object{admission.Binding(), sizes(line)}, false},
		"the binding is gone": {[]client.Object{admission.Policy(), sizes(line)}, false},
	} {
		r := apiServer(t, interceptor.Funcs{}, tc.objects...)
		r.admission.readAt = noon.Add(-time.Second) // All was there a moment ago.
		vs := withUpdate(evicting)
		r.memory.publishedSince(client.ObjectKeyFromObject(vs), vs.Status.NewPods.Containers, noon.Add(-time.Hour))
		if err := r.confirmNewPods(t.Context(), sizing(vs)); (err == nil) != tc.evicts || err != nil && !errors.Is(err, errStaleCache) {
			t.Errorf("%s: %v", name, err)
		}
		if published := !r.memory.of(client.ObjectKeyFromObject(vs)).published.since.IsZero(); published != tc.evicts {
			t.Errorf("%s: published %t", name, published)
		}
	}
}

// The time that the API server has had begins when the size is written down, and again with another size.
func TestSizesCountFromTheirPublication(t *testing.T) {
	r := apiServer(t, interceptor.Funcs{}, admission.Policy(), admission.Binding(), sizes("\ncheckout/5 @;app,100m,,,\n"))
	pass := func(at time.Time, cpu int64) (since time.Time) {
		t.Helper()
		vs := withUpdate(evicting)
		vs.Status.NewPods = scaler.APINewPods(plan.NewPods{Sizes: []plan.Size{{Container: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: cpu}}}}})
		s := sizing(vs)
		s.now = at
		s.observation.situation.Decision.Requests["app"] = quantity.Amounts{CPUMillis: cpu}
		r.decide(t, s)
		since = s.observation.situation.NewPods.AskedSince
		if since.IsZero() != (s.requeueAfter == publishRetry) {
			t.Errorf("published since %s, again in %s", since, s.requeueAfter)
		}
		return since
	}
	if got := pass(noon, 100); !got.Equal(noon) {
		t.Errorf("published since %s", got)
	}
	if got := pass(noon.Add(time.Minute), 100); !got.Equal(noon) {
		t.Errorf("a minute later: published since %s", got)
	}
	if got := pass(noon.Add(2*time.Minute), 200); !got.IsZero() {
		t.Errorf("before another size is published: since %s", got)
	}
	must.Succeed(t, r.Client.Delete(t.Context(), sizes("")))
	must.Succeed(t, r.Client.Create(t.Context(), sizes("\ncheckout/5 @;app,200m,,,\n")))
	if got := pass(noon.Add(3*time.Minute), 200); !got.Equal(noon.Add(3 * time.Minute)) {
		t.Errorf("after that: published since %s", got)
	}
}

// While the API server does not have the sizes, no new pod shows whether it applies them.
func TestUnpublishedSizesAreNotEffective(t *testing.T) {
	for name, tc := range map[string]struct {
		line        string
		isEffective bool
	}{
		"the API server has the sizes":  {"\ncheckout/5 @;app,100m,,,\n", true},
		"the API server has other ones": {"\ncheckout/5 @;app,200m,,,\n", false},
		"the API server has none":       {"\n", false},
	} {
		r := apiServer(t, interceptor.Funcs{}, admission.Policy(), admission.Binding(), sizes(tc.line))
		vs := withUpdate(evicting)
		vs.Status.NewPods.EffectiveSince = &metav1.Time{Time: noon.Add(-time.Hour)}
		s := sizing(vs)
		r.decide(t, s)
		if since := s.plan.NewPods.EffectiveSince; since.IsZero() == tc.isEffective {
			t.Errorf("%s: effective since %s", name, since)
		}
	}
}

// fakePolicy is a watch of the policy for new pods without an API server.
type fakePolicy struct{ changed, isBlind bool }

func (f *fakePolicy) Works() bool { return !f.isBlind }
func (f *fakePolicy) TakeChange() (changed bool) {
	changed, f.changed = f.changed, false
	return changed
}

// An idle operator does not ask whether the policy is there: only after a change, and seldom otherwise, or if it may not watch.
func TestThePolicyForNewPodsIsReadWhenItHasChanged(t *testing.T) {
	policy, reads, began := &fakePolicy{}, 0, time.Now()
	r := apiServer(t, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		reads++
		return apierrors.NewNotFound(schema.GroupResource{}, "x")
	}})
	r.NewPodsPolicy = policy
	for i, step := range []struct {
		does  func()
		after time.Duration
		reads int
	}{
		{nil, 0, 1},
		{nil, 9 * time.Minute, 1},
		{nil, 10 * time.Minute, 2},
		{func() { policy.changed = true }, 10*time.Minute + time.Second, 3},
		{nil, 11 * time.Minute, 3},
		{func() { policy.isBlind = true }, 11*time.Minute + time.Second, 4},
		{nil, 12 * time.Minute, 5},
	} {
		if step.does != nil {
			step.does()
		}
		if _, err := r.admission.check(t.Context(), r, began.Add(step.after), r.ResyncPeriod); err != nil || reads != step.reads {
			t.Errorf("step %d: %d reads, %v; want %d", i, reads, err, step.reads)
		}
	}
}
