// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

//go:embed owned.yaml
var ownedYAML []byte

// ownedState is one in which a ScaledDeployment has all that it asks for.
func ownedState(at int, deploymentName string, generation int64, pods int, used quantity.Amounts, has workload.Resources) state {
	s := aState(at, used, has)
	for _, gone := range s.pods[pods:] {
		delete(s.usage, gone.Name)
	}
	s.pods = s.pods[:pods]
	for i := range s.pods {
		s.pods[i].UID = types.UID(deploymentName + "/" + s.pods[i].Name)
	}
	s.owner = &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "owner"}}
	s.owner.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.example/web:1"}}
	s.owner.Spec.Replicas = ptr.To(int32(pods))
	s.owner.Status.Replicas, s.owner.Status.AvailableReplicas = int32(pods), int32(pods)
	s.owner.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: "True", Reason: "Available", Message: "Deployment " + deploymentName + ": all pods are available"},
		{Type: "Stalled", Status: "False", Reason: "OperatingNormally", Message: "Nothing waits for a person"},
	}
	s.scaler.OwnerReferences = []metav1.OwnerReference{{UID: "owner", Controller: ptr.To(true)}}
	s.scaler.Spec.DeploymentName = deploymentName
	s.deployments = []deployment{{
		name: deploymentName, uid: types.UID(deploymentName), generation: generation, replicas: int32(pods),
		image: "registry.example/web:1", controller: "owner", touched: true,
	}}
	s.atOnce = 1
	s.audit.writes["delete deployments"] = 1
	return s
}

// refusedState is one in which the name that is asked for is another's.
func refusedState(at int) state {
	s := ownedState(at, "shop", 1, 3, steady, size(100, 128))
	s.deployments = append(s.deployments, deployment{name: "legacy", uid: "another", generation: 1, replicas: 1})
	s.owner.Status.Conditions[1] = metav1.Condition{
		Type: "Stalled", Status: "True", Reason: "NotControlled",
		Message: "Deployment legacy exists and is controlled by nobody: delete or rename one of the two",
	}
	s.events = []event{{uid: "1", reason: "Refused"}}
	return s
}

var steady = quantity.Amounts{CPUMillis: 85, MemoryBytes: 110}

// anOwnedPlay is a record of a play in which all went well.
func anOwnedPlay() *record {
	r := newRecord(ownedPiece())
	busy := quantity.Amounts{CPUMillis: 180, MemoryBytes: 200}
	again := func(s state) state { s.deployments[0].uid = "again"; return s }
	outcomes := map[string][]state{
		"made":    {ownedState(20, "web", 1, 2, steady, size(100, 128))},
		"drift":   {ownedState(22, "web", 5, 2, steady, size(100, 128))},
		"deleted": {again(ownedState(24, "web", 1, 2, steady, size(100, 128)))},
		"scaled":  {again(ownedState(40, "web", 2, 3, steady, size(100, 128)))},
		"rise": {
			again(ownedState(50, "web", 2, 3, busy, size(100, 128))),
			again(ownedState(55, "web", 2, 3, busy, size(206, 230))),
		},
		"renamed":    {{at: 57 * time.Second, owner: &v1beta1.ScaledDeployment{}}, ownedState(60, "shop", 1, 3, steady, size(100, 128))},
		"refused":    {refusedState(62)},
		"taken over": {ownedState(66, "legacy", 1, 3, steady, size(100, 128))},
		"calm":       {ownedState(100, "legacy", 1, 3, steady, size(100, 128))},
		"gone":       {{at: 103 * time.Second, audit: ownedState(103, "legacy", 1, 3, steady, size(100, 128)).audit}},
	}
	r.add(state{at: time.Second})
	for _, ph := range r.piece.phases {
		r.begin(ph, r.last.at)
		for _, s := range outcomes[ph.name] {
			r.add(s)
		}
		r.current().done = r.last.at
	}
	return r
}

func TestOwnedPhasesEndWhenTheirOutcomeIsSeen(t *testing.T) {
	fine := func() state { return ownedState(90, "web", 1, 2, steady, size(100, 128)) }
	cases := map[string]struct {
		phase  string
		state  state
		change func(s *state)
		want   string // what is missing
	}{
		"made":                        {phase: "made", state: fine()},
		"made, nothing is there":      {phase: "made", want: "the ScaledDeployment"},
		"made, no Deployment":         {phase: "made", state: fine(), change: func(s *state) { s.deployments = nil }, want: "Deployment web, and no other"},
		"made, no reference":          {phase: "made", state: fine(), change: func(s *state) { s.deployments[0].controller = "" }, want: "Deployment web, and no other"},
		"made, no scaler":             {phase: "made", state: fine(), change: func(s *state) { s.scaler = nil }, want: "its VerticalScaler to look after Deployment web"},
		"made, another's scaler":      {phase: "made", state: fine(), change: func(s *state) { s.scaler.OwnerReferences = nil }, want: "its VerticalScaler to look after Deployment web"},
		"made, the scaler is behind":  {phase: "made", state: fine(), change: func(s *state) { s.scaler.Generation = 2 }, want: "its VerticalScaler to look after Deployment web"},
		"made, a pod is not ready":    {phase: "made", state: fine(), change: func(s *state) { s.pods[1].ready = false }, want: "2 pods, all ready"},
		"made, not ready":             {phase: "made", state: fine(), change: func(s *state) { s.owner.Status.Conditions[0].Status = "False" }, want: "the ScaledDeployment to say that it is ready"},
		"made, ready for an old spec": {phase: "made", state: fine(), change: func(s *state) { s.owner.Generation = 2 }, want: "the ScaledDeployment to say that it is ready"},
		"made, no usage":              {phase: "made", state: fine(), change: func(s *state) { s.usage = nil }, want: "the usage of 2 of 2 pods"},
		"drift, replicas":             {phase: "drift", state: fine(), change: func(s *state) { s.deployments[0].replicas = 9 }, want: "Deployment web to be as the ScaledDeployment says"},
		"drift, image":                {phase: "drift", state: fine(), change: func(s *state) { s.deployments[0].image = "other" }, want: "Deployment web to be as the ScaledDeployment says"},
		"drift, put back":             {phase: "drift", state: fine()},
		"deleted, still going":        {phase: "deleted", state: fine(), change: func(s *state) { s.deployments[0].deleting = true }, want: "Deployment web, and no other"},
		"scaled, not yet":             {phase: "scaled", state: fine(), want: "Deployment web to be as the ScaledDeployment says"},
		"scaled":                      {phase: "scaled", state: ownedState(90, "web", 1, 3, steady, size(100, 128))},
		"rise, not yet":               {phase: "rise", state: ownedState(90, "web", 1, 3, steady, size(100, 128)), want: "3 of 3 pods to have requests above their usage in force"},
		"rise, and the template kept": {phase: "rise", state: ownedState(90, "web", 1, 3, steady, size(206, 230))},
		"renamed, two at once": {
			phase: "renamed", state: ownedState(90, "shop", 1, 3, steady, size(100, 128)),
			change: func(s *state) {
				s.deployments = append(s.deployments, deployment{name: "web", controller: "owner"})
			}, want: "Deployment shop, and no other",
		},
		"renamed":             {phase: "renamed", state: ownedState(90, "shop", 1, 3, steady, size(100, 128))},
		"refused":             {phase: "refused", state: refusedState(90)},
		"refused, untold":     {phase: "refused", state: refusedState(90), change: func(s *state) { s.events = nil }, want: "the ScaledDeployment to say that the Deployment is not its own"},
		"refused, not at all": {phase: "refused", state: ownedState(90, "legacy", 1, 3, steady, size(100, 128)), want: "the ScaledDeployment to say that the Deployment is not its own"},
		"taken over, not yet": {phase: "taken over", state: refusedState(90), want: "Deployment legacy, and no other"},
		"gone":                {phase: "gone"},
		"gone, but for a pod": {phase: "gone", state: state{pods: []pod{aPod(1, size(100, 128))}}, want: "all to be gone: 0 Deployments, 0 ReplicaSets and 1 pods are left"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.state)
			}
			i := slices.IndexFunc(ownedPlay(), func(ph phase) bool { return ph.name == tc.phase })
			r := newRecord(ownedPiece())
			r.add(tc.state)
			if got := ownedPlay()[i].missing(r.begin(ownedPlay()[i], 0), tc.state); got != tc.want {
				t.Errorf("missing() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOwnedChecks(t *testing.T) {
	var all []string
	for _, c := range checksOf(newRecord(ownedPiece())) {
		all = append(all, c.name)
	}
	cases := map[string]struct {
		change func(r *record)
		want   []string // the checks that fail
	}{
		"all went well":            {},
		"nothing was seen":         {change: func(r *record) { *r = *newRecord(ownedPiece()) }, want: all},
		"nothing was put back":     {change: func(r *record) { r.phase("drift").end.deployments[0].generation = 3 }, want: []string{"drift is put back"}},
		"it was never deleted":     {change: func(r *record) { r.phase("deleted").end.deployments = r.phase("deleted").start.deployments }, want: []string{"a deleted one is made again"}},
		"the status is behind":     {change: func(r *record) { r.phase("scaled").end.owner.Status.Replicas = 2 }, want: []string{"kubectl scale sdeploy"}},
		"the template was changed": {change: func(r *record) { r.phase("rise").end.deployments[0].generation = 3 }, want: []string{"and the Deployment left alone"}},
		"a container restarted":    {change: func(r *record) { r.restarts = 1 }, want: []string{"and the Deployment left alone"}},
		"a pod was replaced":       {change: func(r *record) { r.phase("rise").end.pods[0].UID = "new" }, want: []string{"and the Deployment left alone"}},
		"two while renaming":       {change: func(r *record) { r.phase("renamed").most = 2 }, want: []string{"renamed, never two"}},
		"another's was touched":    {change: func(r *record) { r.phase("refused").end.deployments[1].touched = true }, want: []string{"another's Deployment is refused"}},
		"another's was changed":    {change: func(r *record) { r.phase("refused").end.deployments[1].generation = 2 }, want: []string{"another's Deployment is refused"}},
		"the old one was deleted":  {change: func(r *record) { r.phase("refused").end.deployments[0].deleting = true }, want: []string{"another's Deployment is refused"}},
		"told twice": {
			change: func(r *record) {
				end := &r.phase("refused").end
				end.events = append(slices.Clip(end.events), event{uid: "2", reason: "Refused"})
			}, want: []string{"another's Deployment is refused"},
		},
		"another's was adopted": {change: func(r *record) { r.phase("taken over").end.deployments[0].uid = "another" }, want: []string{"and taken over once it is free"}},
		"the operator deleted":  {change: func(r *record) { r.phase("gone").end.audit.writes["delete verticalscalers"] = 1 }, want: []string{"the garbage collector takes all", "no write but its own"}},
		"a right is missing":    {change: func(r *record) { r.last.audit.forbidden = map[string]int{"patch deployments": 1} }, want: []string{"no right missing"}},
		"it never was calm":     {change: func(r *record) { r.phase("calm").done = -1 }, want: []string{"silent when nothing happens"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := anOwnedPlay()
			if tc.change != nil {
				tc.change(r)
			}
			var failed []string
			for _, c := range checksOf(r) {
				if !c.ok {
					failed = append(failed, c.name)
				}
				if len(c.details) == 0 {
					t.Errorf("check %q tells no details", c.name)
				}
			}
			if diff := cmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("failed checks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBothPiecesShowTheSameWorkload(t *testing.T) {
	var owner v1beta1.ScaledDeployment
	if err := yaml.UnmarshalStrict(ownedYAML, &owner); err != nil {
		t.Fatalf("owned.yaml: %v", err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(workloadYAML, &deployment); err != nil {
		t.Fatalf("workload.yaml: %v", err)
	}
	var scaler v1beta1.VerticalScaler
	if err := yaml.UnmarshalStrict(scalerYAML, &scaler); err != nil {
		t.Fatalf("scaler.yaml: %v", err)
	}
	if owner.Name != name || owner.Namespace != namespace {
		t.Errorf("owned.yaml is about %s/%s, want %s/%s", owner.Namespace, owner.Name, namespace, name)
	}
	if diff := cmp.Diff(deployment.Spec.Template, owner.Spec.Template); diff != "" {
		t.Errorf("template (-workload.yaml +owned.yaml):\n%s", diff)
	}
	if diff := cmp.Diff(&scaler.Spec.Scaling, owner.Spec.Scaling); diff != "" {
		t.Errorf("scaling (-scaler.yaml +owned.yaml):\n%s", diff)
	}
}

func TestDeploymentNews(t *testing.T) {
	web := deployment{name: "web", uid: "1", generation: 1, replicas: 2, image: "a"}
	changed, deleting := web, web
	changed.generation, changed.replicas = 2, 9
	deleting.generation, deleting.deleting = 2, true
	cases := map[string]struct {
		before, after []deployment
		want          string
	}{
		"nothing":        {before: []deployment{web}, after: []deployment{web}},
		"a new one":      {after: []deployment{web}, want: "Created  Deployment demo/web"},
		"one changed":    {before: []deployment{web}, after: []deployment{changed}, want: "Changed  Deployment web: generation 1 -> 2, 9 replicas, image a"},
		"one is deleted": {before: []deployment{web}, after: []deployment{deleting}, want: "Deleting Deployment demo/web"},
		"replaced": {
			before: []deployment{web}, after: []deployment{{name: "web", uid: "2"}},
			want: "Created  Deployment demo/web|Gone     Deployment demo/web",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(deploymentNews(tc.before, tc.after), "|"); got != tc.want {
				t.Errorf("deploymentNews() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEveryChangeCounts(t *testing.T) {
	ours := func(uid types.UID) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: ptr.To(true)}}}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "a"}}
		return d
	}
	another := ours("another")
	another.OwnerReferences = nil
	cases := map[string]struct {
		changes []watch.Event
		want    int
	}{
		"none":             {},
		"one":              {[]watch.Event{{Type: watch.Added, Object: ours("1")}, {Type: watch.Modified, Object: ours("1")}}, 1},
		"another's":        {[]watch.Event{{Type: watch.Added, Object: ours("1")}, {Type: watch.Added, Object: another}}, 1},
		"after the other":  {[]watch.Event{{Type: watch.Added, Object: ours("1")}, {Type: watch.Deleted, Object: ours("1")}, {Type: watch.Added, Object: ours("2")}}, 1},
		"before the other": {[]watch.Event{{Type: watch.Added, Object: ours("1")}, {Type: watch.Added, Object: ours("2")}, {Type: watch.Deleted, Object: ours("1")}}, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changes := make(chan watch.Event, len(tc.changes))
			for _, change := range tc.changes {
				changes <- change
			}
			o, s := &observer{changes: changes, owned: map[types.UID]bool{}}, state{}
			if err := o.catchUp(&s); err != nil || s.atOnce != tc.want {
				t.Errorf("catchUp() = %v, at once %d, want %d", err, s.atOnce, tc.want)
			}
		})
	}
	ended := make(chan watch.Event)
	close(ended)
	if err := (&observer{changes: ended}).catchUp(&state{}); err == nil {
		t.Error("catchUp() = nil after the watch has ended")
	}
}
