// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

var noon = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// objects are those of a cluster.
type objects struct {
	clusterPolicies []v1beta1.ClusterScalingPolicy
	policies        []v1beta1.ScalingPolicy
	owners          []v1beta1.ScaledDeployment
	scalers         []v1beta1.VerticalScaler
	checkpoints     []v1beta1.VerticalScalerCheckpoint
}

func (o *objects) backup() Backup {
	return Of(o.clusterPolicies, o.policies, o.owners, o.scalers, o.checkpoints)
}

func (o *objects) shuffle() {
	rand.Shuffle(len(o.policies), func(i, j int) { o.policies[i], o.policies[j] = o.policies[j], o.policies[i] })
	rand.Shuffle(len(o.scalers), func(i, j int) { o.scalers[i], o.scalers[j] = o.scalers[j], o.scalers[i] })
	rand.Shuffle(len(o.checkpoints), func(i, j int) { o.checkpoints[i], o.checkpoints[j] = o.checkpoints[j], o.checkpoints[i] })
}

// in is metadata as the API server has it.
func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-of-" + namespace + "-" + name), ResourceVersion: "77", Generation: 3, CreationTimestamp: noon,
		Labels:        map[string]string{"team": "shop"},
		Annotations:   map[string]string{lastApplied: "{}", "example.com/note": "a\n---\nb: 'x'", v1beta1.RestoredAnnotation: "before"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
}

func learned(t *testing.T) []byte {
	t.Helper()
	c := &history.Container{}
	for minute := range 60 {
		c.Add(usage.Sample{Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 200, MemoryBytes: 400 << 20}, history.DefaultParams())
	}
	return c.Encode()
}

func untidy(t *testing.T) *objects {
	t.Helper()
	o := &objects{}
	for _, namespace := range []string{"shop", "bank"} {
		for _, name := range []string{"web", "cart", "new"} {
			s := v1beta1.VerticalScaler{ObjectMeta: in(namespace, name), Spec: v1beta1.VerticalScalerSpec{DeploymentName: name}}
			s.Finalizers = []string{"autoscaling.verticalscaler.io/restore-original-resources"}
			cpu, memory := resource.MustParse("230m"), resource.MustParse("480Mi")
			s.Status = v1beta1.VerticalScalerStatus{
				ObservedGeneration: 3,
				Annotations:        map[string]string{v1beta1.ClaimAnnotation: namespace + "/" + name},
				Target:             &v1beta1.Target{UID: "theirs"},
				Recommendation: &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
					ContainerName: "app", Target: v1beta1.Amounts{CPU: &cpu, Memory: &memory}, ObservedSeconds: 3600,
				}}},
				Decision:          &v1beta1.Decision{Time: noon, Reason: "ScaleDown"},
				RevertedChanges:   []v1beta1.RevertedChange{{ContainerName: "app", Resource: "cpu", Value: cpu, LastGood: cpu, Time: noon}},
				OriginalResources: &v1beta1.OriginalResources{DeploymentName: name, UID: "theirs"},
				Conditions:        []metav1.Condition{{Type: "Ready"}},
			}
			c := v1beta1.VerticalScalerCheckpoint{ObjectMeta: in(namespace, name), Spec: v1beta1.VerticalScalerCheckpointSpec{
				DeploymentName: name, SaveTime: noon, Containers: []v1beta1.ContainerCheckpoint{{ContainerName: "app", Version: history.Version, Data: learned(t)}},
			}}
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "VerticalScaler", Name: name, UID: s.UID, Controller: new(true)}}
			o.scalers = append(o.scalers, s)
			if name != "new" {
				o.checkpoints = append(o.checkpoints, c)
			}
		}
	}
	o.scalers[1].OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "1"},
		{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "cart", UID: "2", Controller: new(true)},
	}
	owner := v1beta1.ScaledDeployment{ObjectMeta: in("shop", "cart")}
	owner.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "shop/cart:1", Env: []corev1.EnvVar{{Name: "SCRIPT", Value: "a\n---\napiVersion: v1\n---\n"}}}}
	o.owners = []v1beta1.ScaledDeployment{owner}
	o.policies = []v1beta1.ScalingPolicy{{ObjectMeta: in("shop", "all")}, {ObjectMeta: in("bank", "all")}}
	o.clusterPolicies = []v1beta1.ClusterScalingPolicy{{ObjectMeta: in("", "fleet")}}
	return o
}

func written(t *testing.T, b Backup) string {
	t.Helper()
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheSameObjectsGiveTheSameBytes(t *testing.T) {
	o := untidy(t)
	want := written(t, o.backup())
	for range 20 {
		o.shuffle()
		if got := written(t, o.backup()); got != want {
			t.Fatalf("another order gives other bytes:\n%s", cmp.Diff(want, got))
		}
	}
	read, err := Read(strings.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o.backup(), read, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what is read is not what was written (-written +read):\n%s", diff)
	}
	if got := written(t, read); got != want {
		t.Error("what is read gives other bytes")
	}
}

func TestWhatABackupHolds(t *testing.T) {
	b := untidy(t).backup()
	if len(b.Scalers) != 6 || len(b.Policies) != 2 || len(b.ClusterPolicies) != 1 || len(b.ScaledDeployments) != 1 {
		t.Errorf("%d scalers, %d policies, %d cluster policies, %d ScaledDeployments", len(b.Scalers), len(b.Policies), len(b.ClusterPolicies), len(b.ScaledDeployments))
	}
	text := written(t, b)
	for _, foreign := range []string{"uid-of-", "theirs", "resourceVersion", "finalizers", "originalResources", "decision", "conditions", "managedFields", lastApplied, v1beta1.RestoredAnnotation, "kind: ConfigMap", "claim"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the backup has %q, which is only true in the cluster it comes from", foreign)
		}
	}
	for _, want := range []string{"revertedChanges", "kind: ScaledDeployment\n    name: cart", "observedSeconds: 3600", "example.com/note"} {
		if !strings.Contains(text, want) {
			t.Errorf("the backup lacks %q", want)
		}
	}
}

func TestWhatABackupLeavesOut(t *testing.T) {
	o := untidy(t)
	deleted := noon
	o.scalers[0].DeletionTimestamp = &deleted              // shop/web
	o.owners[0].DeletionTimestamp = &deleted               //
	o.policies[0].DeletionTimestamp = &deleted             //
	o.clusterPolicies[0].DeletionTimestamp = &deleted      //
	o.checkpoints[1].OwnerReferences[0].UID = "of another" // shop/cart was created again
	o.checkpoints[2].Spec.DeploymentName = "before"        // bank/web was retargeted
	b := o.backup()
	if len(b.ScaledDeployments) != 0 || len(b.Policies) != 1 || len(b.ClusterPolicies) != 0 {
		t.Error("objects that are being deleted are in the backup")
	}
	var with []string
	for _, s := range b.Scalers {
		with = append(with, fmt.Sprintf("%s %t", s.Key(), s.Checkpoint != nil))
	}
	want := []string{"bank/cart true", "bank/new false", "bank/web false", "shop/cart false", "shop/new false"}
	if diff := cmp.Diff(want, with); diff != "" {
		t.Errorf("scalers and whether they have a history (-want +got):\n%s", diff)
	}
}

// Of a file that is not whole, nothing is read.
func TestDamagedFilesAreRefused(t *testing.T) {
	b := untidy(t).backup()
	text := written(t, b)
	first, body, _ := strings.Cut(text, "\n---\n")
	// resummed is the file with another body and the right checksum.
	resummed := func(body string) string {
		before, _, _ := strings.Cut(first, "sha256: ")
		return before + "sha256: " + checksum([]byte(body)) + "\n---\n" + body
	}
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                   {"", "this is not a backup"},
		"other YAML":              {"apiVersion: v1\nkind: List\n", "this is not a backup: its first document is not one that"},
		"no YAML":                 {"\x00\x01{", "this is not a backup"},
		"of the next version":     {strings.Replace(text, "backup.verticalscaler.io/v1", "backup.verticalscaler.io/v2", 1), `has version "v2", and this plugin knows "v1"`},
		"cut off":                 {text[:len(text)-10], "the checksum is wrong"},
		"cut off in the header":   {text[:100], "this is not a backup"},
		"edited":                  {strings.Replace(text, "480Mi", "48Mi", 1), "the checksum is wrong"},
		"without its last object": {resummed(body[:strings.LastIndex(body, "\n---\n")+1]), "the header announces 14 objects"},
		"with an unknown field":   {resummed(strings.Replace(body, "deploymentName: cart", "deploymentName: cart\n  hidden: 1", 1)), `unknown field "hidden"`},
		"with a Secret":           {resummed(strings.Replace(body, "kind: ScaledDeployment\n", "kind: Secret\n", 1)), `kind "Secret" does not belong into a backup`},
		"of another group":        {resummed(strings.Replace(body, "apiVersion: autoscaling.verticalscaler.io/v1beta1\nkind: ScaledDeployment\n", "apiVersion: v1\nkind: ScaledDeployment\n", 1)), `apiVersion "v1" is not autoscaling.verticalscaler.io/v1beta1`},
		"with a foreign history":  {resummed(strings.Replace(body, "kind: VerticalScalerCheckpoint\nmetadata:\n  annotations:\n    example.com/note: |-\n      a\n      ---\n      b: 'x'\n  labels:\n    team: shop\n  name: cart", "kind: VerticalScalerCheckpoint\nmetadata:\n  name: web", 1)), "is not of the scaler before it"},
		"with a broken history":   {resummed(strings.Replace(body, "    data: ", "    data: AAAA", 1)), `object 6: the history of container "app" of bank/cart: `},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.text == text {
				t.Fatal("the file is not damaged")
			}
			b, err := Read(strings.NewReader(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if len(b.objects()) > 0 {
				t.Errorf("%d objects were read", len(b.objects()))
			}
		})
	}
	if _, err := Read(strings.NewReader(text)); err != nil {
		t.Errorf("the whole file: %v", err)
	}
	var none Backup
	if read, err := Read(strings.NewReader(written(t, none))); err != nil || len(read.objects()) > 0 {
		t.Errorf("an empty backup: %v", err)
	}
}

// Whatever is inserted into a file, it is refused or changes nothing.
func FuzzRead(f *testing.F) {
	f.Add("", 0)
	f.Add("---\n", 40)
	f.Add("objects: 3\n", 75)
	f.Add("kind: Secret", 300)
	f.Fuzz(func(t *testing.T, insert string, at int) {
		text := written(t, untidy(t).backup())
		at = max(0, min(at, len(text)))
		if read, err := Read(strings.NewReader(text[:at] + insert + text[at:])); err == nil && written(t, read) != text {
			t.Errorf("%q at %d is accepted, and changes what is read", insert, at)
		}
	})
}
