// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
		"autoscaling.verticalscaler.io/paused": "incident 42, token=abc", "kubectl.kubernetes.io/last-applied-configuration": "canary",
	}}}
	got := redactedObject(object)["metadata"].(map[string]any)["annotations"]
	if diff := cmp.Diff(any(map[string]any{"autoscaling.verticalscaler.io/paused": "incident 42, token=[masked]"}), got); diff != "" {
		t.Error(diff)
	}
}

func TestMasked(t *testing.T) {
	for text, want := range map[string]string{
		"Deployment shop/web: 500m->310m":                                           "Deployment shop/web: 500m->310m",
		"Authorization: Bearer abcdef0123":                                          "Authorization: Bearer [masked]",
		"got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrIn0.c2ln":                             "got [masked]",
		"GET https://max:pw@prom.example/api failed":                                "GET https://[masked]prom.example/api failed",
		`{"password":"hunter2","name":"web"}`:                                       `{"password":"[masked]","name":"web"}`,
		"api_key=123, API-Key: 456; tokens: x":                                      "api_key=[masked], API-Key: [masked]; tokens: [masked]",
		"dial tcp 10.0.0.7:443: refused":                                            "dial tcp [masked]:443: refused",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest": "[masked]\nrest",
		"-----BEGIN CERTIFICATE-----\nabc":                                          "[masked]",
	} {
		if got := masked(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if once := masked(text); masked(once) != once {
			t.Errorf("masked twice: %q", masked(once))
		}
	}
}

// Messages of events and logs of programs, also with other secrets in the same places.
func TestNoCredentialIsLeft(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 18))
	hasFormat := regexp.MustCompile(`^(AKIA|ghp_|xoxb-|dckr|2001:)`) // of a provider: nothing else is masked there
	for text, secret := range map[string]string{
		`Liveness probe failed: login with password "correct horse battery"`:       "horse",
		`Readiness probe failed: password="correct horse battery staple" rejected`: "horse",
		`Error: --token s3cr3tvalue rejected`:                                      "s3cr3tvalue",
		`Error: --password hunter2`:                                                "hunter2",
		`PGPASS hunter2`:                                                           "hunter2",
		`MYSQL_PWD=hunter2`:                                                        "hunter2",
		`pwd=hunter2`:                                                              "hunter2",
		`AWS key AKIAIOSFODNN7EXAMPLE denied`:                                      "AKIAIOSFODNN7EXAMPLE",
		`git clone failed: ghp_16C7e42F292c6912E7710c838347Ae178B4a`:               "ghp_16C7e42F",
		`slack xoxb-123456789012-abcdefghijkl`:                                     "xoxb-1234",
		`https://store.blob.example/x?sv=2022&sig=abc%2Fdef123`:                    "abc%2Fdef123",
		`DefaultEndpointsProtocol=https;AccountKey=Zm9vYmFyYmF6==`:                 "Zm9vYmFy",
		`mongodb://user:p@ssw0rd@db.example/x`:                                     "ssw0rd",
		`redis://:pa/ss@db.example`:                                                "pa/ss",
		`Authorization: Token abcdef012345`:                                        "abcdef012345",
		`X-Vault-Token: hvs.CAESIJ`:                                                "hvs.CAESIJ",
		`private_key: MIIEvQIBADANBg`:                                              "MIIEvQIBADANBg",
		`pulling with dckr_Pat9x27jf3kq8vLw0aZ denied`:                             "dckr_Pat9x27jf3kq8vLw0aZ",
		`app_token := x9f2`:                                                        "x9f2",
		`setProperty("DB_TOKEN", "x9f2")`:                                          "x9f2",
		`curl -u elastic:x9f2 es:9200`:                                             "x9f2",
		`dial tcp [2001:db8::7]:443: refused`:                                      "2001:db8::7",
	} {
		// The same credential among other texts.
		for _, whole := range []string{text, "web-1: " + text, text + " (x3)", `{"msg":` + strconv.Quote(text) + `}`, "first\n" + text + "\nlast"} {
			if got := masked(whole); strings.Contains(got, secret) {
				t.Errorf("%s becomes %s", whole, got)
			}
		}
		for range 50 {
			planted := fmt.Sprintf("%x%c%X=", random.Uint32(), "+/_.%-!$"[random.IntN(8)], random.Uint64())
			if got := masked(strings.ReplaceAll(text, secret, planted)); strings.Contains(got, planted) && !hasFormat.MatchString(secret) {
				t.Errorf("%s in %s becomes %s", planted, text, got)
			}
		}
	}
	for _, text := range []string{
		`MountVolume.SetUp failed for volume "tls": secret "web-tls" not found`, `12:34:56 the token has expired`, `pods/resize is forbidden: the password policy`,
		`resized web-5d4f8b9c4-bcdf2 to sha256:9f86d081884c7d659a2feaa0c55ad015, VerticalScalerCheckpoint 17f3a8b2-0c1d-4e5f-8a9b-0c1d2e3f4a5b`,
	} {
		if got := masked(text); got != text {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}
