// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package onestep

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

var timesOut = action{"timeout", func(*world.Operator, world.Write, func() error) error {
	return fmt.Errorf("Put \"https://10.0.0.1:443\": %w", context.DeadlineExceeded)
}}

// An OOM kill is answered on all pods although writes that the answer does not need fail for ever, however they fail. The
// scaler reports which object cannot be written, and why, if its status can.
func TestUrgentAnswersComeWhileOtherWritesFail(t *testing.T) {
	quotes := map[string]string{timesOut.name: "context deadline exceeded", "refused-409": "the object has been modified"}
	for _, failing := range []string{"verticalscalercheckpoints", "verticalscalers/status", "newpodsizes", "events"} {
		for _, a := range []action{
			refused(http.StatusForbidden), refused(http.StatusConflict), refused(http.StatusTooManyRequests), refused(http.StatusInternalServerError),
			refused(http.StatusServiceUnavailable), timesOut,
		} {
			t.Run(strings.ReplaceAll(failing, "/", ".")+"-"+a.name, func(t *testing.T) {
				t.Parallel()
				w := world.New(t, world.NewAPI(admission.Policy(), admission.Binding()), "shop", world.Options{
					StartingAt: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC),
					Configure:  func(c *operatorconfig.Operator) { world.Compress(c, time.Minute) },
				})
				labels := map[string]string{world.AppLabel: "web"}
				app := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("100Mi")},
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("200Mi")},
				}}
				w.Deploy(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{
					Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{app}}},
				}})
				w.Uses("web", "app", 90, 90)
				w.Create(&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.VerticalScalerSpec{
					DeploymentName: "web", Scaling: v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeInPlace}},
				}})
				size := w.Sized("web")
				struck, event := false, make(chan bool, 1)
				w.Fault = func(write world.Write, _ int, send func() error) error {
					if write.Resource == failing {
						struck = true
						return a.do(w.Operator, write, send)
					}
					return send()
				}
				if failing == "events" { // as the operator sends them: not from a reconcile. A request that times out hangs here.
					struck = true
					client := fake.NewClientset()
					client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
						select {
						case event <- true:
						default:
						}
						if a.name == timesOut.name {
							<-t.Context().Done()
						}
						return true, nil, a.do(w.Operator, world.Write{}, nil)
					})
					broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
					t.Cleanup(broadcaster.Shutdown)
					must.Succeed(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
					w.Operator.Scalers.Recorder = broadcaster.NewRecorder(w.Operator.Scalers.Client.Scheme(), "test")
				}
				for killed := range 2 { // The second answer finds that the writes after the first one have failed.
					begun, before := w.Clock.Now(), *size.Memory()
					w.Kill(&w.Pods("web")[killed], "app")
					w.Await("a raise of all pods", func() string {
						for _, pod := range w.Pods("web") {
							size = world.Asked(&pod, "app").Requests
							if size.Memory().Cmp(before) <= 0 {
								return fmt.Sprintf("pod %s still requests %s", pod.Name, size.Memory())
							}
						}
						if !struck {
							return "no write has failed"
						}
						return ""
					})
					if took := w.Clock.Since(begun); took > 15*time.Second {
						t.Errorf("the answer took %s", took)
					}
				}
				if failing == "events" {
					<-event
				}
				c := w.Condition("web", v1beta1.ConditionStalled)
				if message := c.Message; failing == "verticalscalercheckpoints" && (c.Status != metav1.ConditionTrue ||
					!strings.Contains(message, "verticalscalercheckpoints") || !strings.Contains(message, cmp.Or(quotes[a.name], "refused by the test"))) {
					t.Errorf("Stalled is %s: %s: %s", c.Status, c.Reason, message)
				}
			})
		}
	}
}
