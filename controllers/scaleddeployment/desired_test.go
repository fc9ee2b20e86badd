// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// anOwner is a ScaledDeployment shop/web with one container.
func anOwner(changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	o := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner-1", Generation: 4},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To(int32(3)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "example.com/app:1",
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("0.5"), "memory": resource.MustParse("128Mi"), "ephemeral-storage": resource.MustParse("1Gi")},
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("1000m")},
				},
			}}}},
		},
	}
	for _, change := range changes {
		change(o)
	}
	return o
}

// ownedFields is a set of resources that a scaler owns, such as "app requests cpu".
func ownedFields(fields ...string) *fieldpath.Set {
	set := fieldpath.NewSet()
	for _, field := range fields {
		f := strings.Fields(field)
		set.Insert(fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", f[0]), "resources", f[1], f[2]))
	}
	return set
}

func TestDeploymentFor(t *testing.T) {
	const (
		metadata = `
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: shop
  name: web
  labels: {autoscaling.verticalscaler.io/scaled-deployment: web}
  ownerReferences: [{apiVersion: autoscaling.verticalscaler.io/v1beta1, kind: ScaledDeployment, name: web, uid: owner-1, controller: true, blockOwnerDeletion: true}]
`
		spec = `
spec:
  replicas: 3
  selector: {matchLabels: {autoscaling.verticalscaler.io/scaled-deployment: web}}
  template:
    metadata: {labels: {autoscaling.verticalscaler.io/scaled-deployment: web}}
`
		all = `{cpu: 500m, memory: 128Mi, ephemeral-storage: 1Gi}`
	)
	container := func(resources string) string {
		return "    spec: {containers: [{name: app, image: 'example.com/app:1', resources: " + resources + "}]}\n"
	}
	cases := map[string]struct {
		change  func(*v1beta1.ScaledDeployment)
		scalers *fieldpath.Set
		want    string
	}{
		"the document has the fields of its owner only": {
			want: metadata + spec + container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"another name than the owner's": {
			change: func(o *v1beta1.ScaledDeployment) { o.Spec.DeploymentName = "other" },
			want:   strings.Replace(metadata, "name: web", "name: other", 1) + spec + container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"zero replicas": {
			change: func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(0)) },
			want:   metadata + strings.Replace(spec, "replicas: 3", "replicas: 0", 1) + container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"a custom selector leaves the template unchanged": {
			change: func(o *v1beta1.ScaledDeployment) {
				o.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
				o.Spec.Template.Labels = map[string]string{"app": "web"}
			},
			want: metadata + strings.ReplaceAll(spec, "{autoscaling.verticalscaler.io/scaled-deployment: web}", "{app: web}") +
				container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"a label that contradicts the selector is left for the API server to reject": {
			change: func(o *v1beta1.ScaledDeployment) {
				o.Spec.Template.Labels = map[string]string{v1beta1.ScaledDeploymentLabel: "other"}
			},
			want: metadata + strings.Replace(spec, "metadata: {labels: {autoscaling.verticalscaler.io/scaled-deployment: web}}", "metadata: {labels: {autoscaling.verticalscaler.io/scaled-deployment: other}}", 1) +
				container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"resources that a scaler owns are omitted": {
			scalers: ownedFields("app requests cpu", "app limits cpu"),
			want:    metadata + spec + container(`{requests: {memory: 128Mi, ephemeral-storage: 1Gi}}`),
		},
		"only CPU and memory are omitted": {
			scalers: ownedFields("app requests cpu", "app requests memory", "app limits cpu", "app requests ephemeral-storage"),
			want:    metadata + spec + container(`{requests: {ephemeral-storage: 1Gi}}`),
		},
		"resources of another container are not omitted": {
			scalers: ownedFields("other requests cpu"),
			want:    metadata + spec + container(`{requests: `+all+`, limits: {cpu: "1"}}`),
		},
		"the resources field is omitted if a scaler owns all of it": {
			change: func(o *v1beta1.ScaledDeployment) {
				delete(o.Spec.Template.Spec.Containers[0].Resources.Requests, "ephemeral-storage")
			},
			scalers: ownedFields("app requests cpu", "app requests memory", "app limits cpu"),
			want:    metadata + spec + "    spec: {containers: [{name: app, image: 'example.com/app:1'}]}\n",
		},
		"an empty template": {
			change: func(o *v1beta1.ScaledDeployment) { o.Spec.Template = corev1.PodTemplateSpec{} },
			want:   metadata + spec + "    spec: {containers: null}\n",
		},
		"init containers without resources": {
			change: func(o *v1beta1.ScaledDeployment) {
				o.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
				o.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			},
			want: metadata + spec + "    spec: {containers: [{name: app, image: 'example.com/app:1'}], initContainers: [{name: init}]}\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := anOwner()
			if tc.change != nil {
				tc.change(owner)
			}
			before := owner.DeepCopy()
			got, err := deploymentFor(owner, tc.scalers)
			must.Succeed(t, err)
			assert.Equal(t, "the owner", before, owner)
			if appliedHash(got) == "" {
				t.Error("the document has no hash")
			}
			got.SetAnnotations(nil)
			var want map[string]any
			must.Succeed(t, yaml.Unmarshal([]byte(tc.want), &want))
			assert.Equal(t, "deploymentFor()", asJSON(t, want), asJSON(t, got.Object))
		})
	}
}

// asJSON normalizes the types of values.
func asJSON(t *testing.T, value any) (out any) {
	t.Helper()
	text, err := json.Marshal(value)
	must.Succeed(t, err)
	must.Succeed(t, json.Unmarshal(text, &out))
	return out
}

func TestScalerFor(t *testing.T) {
	owner := anOwner(func(o *v1beta1.ScaledDeployment) {
		o.Spec.DeploymentName = "other"
		o.Spec.Scaling = &v1beta1.Scaling{Suspend: true, UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: "Recommend"}}
	})
	got, err := scalerFor(owner)
	must.Succeed(t, err)
	var typed v1beta1.VerticalScaler
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, &typed))
	if typed.Namespace != "shop" || typed.Name != "web" || typed.Spec.DeploymentName != "other" || !typed.Spec.Suspend || typed.Spec.UpdatePolicy.UpdateMode != "Recommend" ||
		!metav1.IsControlledBy(&typed, owner) || typed.Labels[v1beta1.ScaledDeploymentLabel] != "web" || appliedHash(&typed) == "" {
		t.Errorf("scalerFor() = %+v", typed)
	}
	if _, ok := got.Object["status"]; ok {
		t.Error("the document has a status")
	}
}

func TestContains(t *testing.T) {
	cases := map[string]struct {
		desired, live string
		want          bool
	}{
		"equal":                                    {`{a: 1, b: [x]}`, `{a: 1, b: [x]}`, true},
		"more in a map":                            {`{a: 1}`, `{a: 1, b: 2}`, true},
		"less in a map":                            {`{a: 1, b: 2}`, `{a: 1}`, false},
		"another value":                            {`{a: 1}`, `{a: 2}`, false},
		"another type":                             {`{a: 1}`, `{a: "1"}`, false},
		"true is not false":                        {`{a: false}`, `{a: true}`, false},
		"false is not unset":                       {`{a: false}`, `{}`, false},
		"a map instead of a word":                  {`{a: {b: 1}}`, `{a: b}`, false},
		"a list instead of a map":                  {`{a: [b]}`, `{a: {b: 1}}`, false},
		"an empty map is contained in a map":       {`{a: {}}`, `{a: {b: 1}}`, true},
		"an empty map is missing":                  {`{a: {}}`, `{}`, false},
		"null is unset":                            {`{a: null}`, `{}`, true},
		"null is not a value":                      {`{a: null}`, `{a: 1}`, false},
		"an inner value":                           {`{a: {b: {c: 1}}}`, `{a: {b: {c: 2}}}`, false},
		"words in order":                           {`[x, y]`, `[x, y]`, true},
		"words in another order":                   {`[x, y]`, `[y, x]`, false},
		"an extra word at the end":                 {`[x]`, `[x, y]`, false},
		"an extra word in front":                   {`[x]`, `[y, x]`, false},
		"a missing word":                           {`[x, y]`, `[x]`, false},
		"objects in order":                         {`[{n: a}, {n: b}]`, `[{n: a, v: 1}, {n: b}]`, true},
		"objects in another order":                 {`[{n: a}, {n: b}]`, `[{n: b}, {n: a}]`, false},
		"an extra object in front":                 {`[{n: a}, {n: b}]`, `[{n: x}, {n: a}, {n: b}]`, true},
		"an extra object in between":               {`[{n: a}, {n: b}]`, `[{n: a}, {n: x}, {n: b}]`, true},
		"an extra object at the end":               {`[{n: a}, {n: b}]`, `[{n: a}, {n: b}, {n: x}]`, true},
		"a missing object":                         {`[{n: a}, {n: b}]`, `[{n: a}]`, false},
		"the last object is missing":               {`[{n: a}, {n: b}]`, `[{n: a}, {n: x}]`, false},
		"a changed object":                         {`[{n: a, v: 1}]`, `[{n: a, v: 2}]`, false},
		"one object does not match two":            {`[{v: 1}, {v: 1}]`, `[{v: 1}]`, false},
		"an extra toleration":                      {`{tolerations: [{key: a}]}`, `{tolerations: [{key: a}, {key: b}]}`, false},
		"a missing toleration":                     {`{tolerations: [{key: a}, {key: b}]}`, `{tolerations: [{key: a}]}`, false},
		"a toleration with defaults":               {`{tolerations: [{key: a}]}`, `{tolerations: [{key: a, operator: Equal}]}`, true},
		"two empty lists":                          {`{a: []}`, `{a: []}`, true},
		"an empty list is stored as none":          {`{a: []}`, `{a: null}`, true},
		"an empty list is missing, which is equal": {`{a: []}`, `{}`, true},
		"an empty list is not a list of words":     {`{a: []}`, `{a: [x]}`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var desired, live any
			for text, into := range map[string]*any{tc.desired: &desired, tc.live: &live} {
				must.Succeed(t, yaml.Unmarshal([]byte(text), into))
			}
			if tc.desired == tc.live {
				live = desired
			}
			field := "args"
			if strings.HasPrefix(tc.desired, "[{") {
				field = "containers"
			}
			if got := contains(field, desired, live); got != tc.want {
				t.Errorf("contains(%s, %s, %s) = %t", field, tc.desired, tc.live, got)
			}
		})
	}
}

func TestIsApplied(t *testing.T) {
	owner := anOwner()
	desired, err := deploymentFor(owner, nil)
	must.Succeed(t, err)
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"as it was applied": {func(*appsv1.Deployment) {}, true},
		"with defaults and a status": {func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = ptr.To(int32(600))
			d.Status.Replicas = 3
			d.Spec.Template.Spec.DNSPolicy = "Default"
		}, true},
		"with a sidecar": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "side"}}, d.Spec.Template.Spec.Containers...)
		}, true},
		"with a label of another manager": {func(d *appsv1.Deployment) { d.Labels["a"] = "b" }, true},
		"with an extra owner": {func(d *appsv1.Deployment) {
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{UID: "x"})
		}, true},
		"after another document was applied": {func(d *appsv1.Deployment) { d.Annotations[v1beta1.AppliedAnnotation] = "0" }, false},
		"without the annotation":             {func(d *appsv1.Deployment) { d.Annotations = nil }, false},
		"without the label":                  {func(d *appsv1.Deployment) { d.Labels = nil }, false},
		"with other replicas":                {func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) }, false},
		"with another amount": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		}, false},
		"with an equal amount in another format": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("0.500")
		}, true},
		"without the container":    {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil }, false},
		"no longer the controller": {func(d *appsv1.Deployment) { d.OwnerReferences[0].Controller = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			live := typed(t, desired)
			tc.change(live)
			if got, err := isApplied(desired, live); err != nil || got != tc.want {
				t.Errorf("isApplied() = %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}

// typed decodes a document like the cache.
func typed(t *testing.T, document *unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	text, err := json.Marshal(document)
	must.Succeed(t, err)
	var d appsv1.Deployment
	must.Succeed(t, json.Unmarshal(text, &d))
	return &d
}

// A document with a random template is applied as the API server stores it, and no longer
// after any of its values has changed.
func TestAnyTemplateIsAppliedUntilOneOfItsValuesChanges(t *testing.T) {
	leaves := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		owner := anOwner(func(o *v1beta1.ScaledDeployment) {
			fill(r, reflect.ValueOf(&o.Spec.Template).Elem(), 0)
			o.Spec.Template.CreationTimestamp = metav1.Time{}
		})
		desired, err := deploymentFor(owner, nil)
		must.Succeed(t, err)
		live := typed(t, desired)
		stored, err := live.Marshal() // as stored in etcd
		must.Succeed(t, err)
		live = &appsv1.Deployment{}
		must.Succeed(t, live.Unmarshal(stored))
		if ok, err := isApplied(desired, live); !ok || err != nil {
			t.Fatalf("seed %d: not applied: %v\n%s", seed, err, cmp.Diff(asJSON(t, desired.Object), asJSON(t, live)))
		}
		if again, err := deploymentFor(owner, nil); err != nil || appliedHash(again) != appliedHash(desired) {
			t.Fatalf("seed %d: another hash the second time, %v", seed, err)
		}
		all := pathsOf(desired.Object["spec"], nil)
		for range 40 {
			path := all[r.IntN(len(all))]
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
			must.Succeed(t, err)
			changed := replaceLeaf(content["spec"], path)
			content["spec"] = changed
			if contains("", desired.Object["spec"], content["spec"]) {
				t.Fatalf("seed %d: spec%s has changed, and is still contained", seed, path)
			}
			leaves++
		}
	}
	t.Logf("%d values changed", leaves)
}

// step is a key of a map or an index of a list.
type step struct {
	key   string
	index int
}

func (s step) String() string {
	if s.key != "" {
		return "." + s.key
	}
	return fmt.Sprintf("[%d]", s.index)
}

// pathsOf are the paths to all values that are neither maps nor lists.
func pathsOf(value any, at []step) (paths [][]step) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			paths = append(paths, pathsOf(v[key], append(at[:len(at):len(at)], step{key: key}))...)
		}
	case []any:
		for i, inner := range v {
			paths = append(paths, pathsOf(inner, append(at[:len(at):len(at)], step{index: i}))...)
		}
	case nil:
	default:
		paths = append(paths, at)
	}
	return paths
}

// replaceLeaf replaces the value at the path.
func replaceLeaf(value any, path []step) any {
	if len(path) == 0 {
		return fmt.Sprintf("not %v", value)
	}
	switch v := value.(type) {
	case map[string]any:
		v[path[0].key] = replaceLeaf(v[path[0].key], path[1:])
	case []any:
		v[path[0].index] = replaceLeaf(v[path[0].index], path[1:])
	}
	return value
}

// fill gives fields random values, fewer the deeper they are.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Addr().Interface().(type) {
	case *resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse([]string{"0.5", "1000m", "1Gi", "1024Mi", "1e3", "2", "100m", "0"}[r.IntN(8)])))
		return
	case *intstr.IntOrString:
		v.Set(reflect.ValueOf([]intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("http")}[r.IntN(2)]))
		return
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1_700_000_000+r.Int64N(1000), 0))))
		return
	case *metav1.FieldsV1:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"app", "side", "web", "True", "a b", "", "http", "0"}[r.IntN(8)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) > 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(3))
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(200)))
	case reflect.Pointer:
		if r.IntN(3+depth) < 2 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(r, v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if n := r.IntN(3); r.IntN(1+depth/3) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth+1)
			fill(r, value, depth+1)
			v.SetMapIndex(key, value)
		}
	}
}
