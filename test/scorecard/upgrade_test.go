// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// The fixture must contain all that an upgrade could lose. Otherwise, the test would not
// notice a loss.
func TestEachVersionHasACompleteFixture(t *testing.T) {
	versions, err := storedVersions(testdata)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		all, err := readStored(testdata, version, "here")
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 2 {
			t.Errorf("%s has stored %d scalers, want one in place and one in its template", version, len(all))
		}
		held, owned := 0, 0
		for _, one := range all {
			scaler, checkpoint := typed(t, one)
			s := scaler.Status
			if s.Decision == nil || s.Recommendation == nil || len(s.History) < 2 || len(s.Conditions) != 6 || s.Target == nil || s.Summary == nil {
				t.Errorf("the status of %s of %s is not complete: %+v", scaler.Name, version, s)
			}
			if got := s.Annotations[v1beta1.ClaimAnnotation]; got != "here/"+scaler.Spec.DeploymentName {
				t.Errorf("the claim is %q", got)
			}
			if s.Target.UID != one.deployment.GetUID() {
				t.Errorf("the target of %s is another Deployment", scaler.Name)
			}
			if s.OriginalResources != nil {
				held += len(s.OriginalResources.Containers)
				if s.OriginalResources.UID != one.deployment.GetUID() || !slices.Contains(scaler.Finalizers, v1beta1.RestoreFinalizer) {
					t.Errorf("%s holds something of %s, and has the finalizers %v", scaler.Name, s.OriginalResources.UID, scaler.Finalizers)
				}
			}
			owned += len(one.deployment.GetManagedFields())
			for _, c := range checkpoint.Spec.Containers {
				h, err := history.Decode(c.Data)
				if err != nil || h.Observed() < 2*time.Minute || h.Peak() == 0 {
					t.Errorf("what was learned about %s of %s: %s, %v", c.ContainerName, scaler.Name, h.Observed(), err)
				}
				if c.ContainerName == "app" && h.NewestKill().IsZero() {
					t.Errorf("%s knows of no OOM kill", scaler.Name)
				}
			}
		}
		if held < 2 || owned != 1 {
			t.Errorf("%s holds values of %d containers, and owns fields of %d Deployments", version, held, owned)
		}
	}
}

func typed(t *testing.T, one stored) (*v1beta1.VerticalScaler, *v1beta1.VerticalScalerCheckpoint) {
	t.Helper()
	scaler, checkpoint := &v1beta1.VerticalScaler{}, &v1beta1.VerticalScalerCheckpoint{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.scaler.Object, scaler); err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.checkpoint.Object, checkpoint); err != nil {
		t.Fatal(err)
	}
	return scaler, checkpoint
}

func TestUpgradeKeepsStatus(t *testing.T) {
	// The fake API server stores objects as Go types, which omit this field.
	content, err := fs.ReadFile(testdata, "testdata/v0.1.0/stored.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"testdata/v0.1.0/stored.yaml": {Data: bytes.ReplaceAll(content, []byte("  suspend: false\n"), nil)}}
	lower := func(a *v1beta1.Amounts) { a.Memory = ptr.To(resource.MustParse("1Mi")) }
	for name, tc := range map[string]struct {
		operator func(*operator)
		state    v1alpha3.State
		words    []string
	}{
		"passes with a healthy operator": {state: "pass"},
		"passes although reconciles are queued that remove what is stored": {
			operator: func(o *operator) { o.queued = 3 }, state: "pass",
		},
		"fails without an operator": {operator: func(o *operator) { o.absent = true }, state: "fail", words: []string{"no operator has written a status"}},
		"fails if the API server drops a field": {
			operator: func(o *operator) { o.store = func(s *v1beta1.VerticalScaler) { s.Status.Decision.Reason = "" } },
			state:    "fail", words: []string{"stored-in-place of v0.1.0: the API server has not kept status.decision.reason (written OOMKill, read <nil>) of the VerticalScaler"},
		},
		"fails if the API server drops a list": {
			operator: func(o *operator) { o.store = func(s *v1beta1.VerticalScaler) { s.Status.History = nil } },
			state:    "fail", words: []string{"the API server has not kept status.history"},
		},
		"fails without the recommendation": {
			operator: func(o *operator) { o.status = func(s *v1beta1.VerticalScaler) { s.Status.Recommendation = nil } },
			state:    "fail", words: []string{"the recommendation is lost"},
		},
		"fails without the recommendation for a container": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					if r := s.Status.Recommendation; r != nil {
						r.ContainerRecommendations = r.ContainerRecommendations[:1]
					}
				}
			},
			state: "fail", words: []string{"the recommendation for container proxy is lost"},
		},
		"fails with a lower recommendation": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					if r := s.Status.Recommendation; r != nil {
						lower(&r.ContainerRecommendations[0].Target)
					}
				}
			},
			state: "fail", words: []string{"the recommendation for container app was memory 994Mi and is 1Mi"},
		},
		"fails with a recommendation on less evidence": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					if r := s.Status.Recommendation; r != nil {
						r.ContainerRecommendations[0].ObservedSeconds = 1
					}
				}
			},
			state: "fail", words: []string{"rested on 120 s and rests on 1 s"},
		},
		"fails without the decision": {
			operator: func(o *operator) { o.status = func(s *v1beta1.VerticalScaler) { s.Status.Decision = nil } },
			state:    "fail", words: []string{"the decision is lost"},
		},
		"fails with a lower decision": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					if d := s.Status.Decision; d != nil {
						lower(&d.Containers[0].Requests)
						d.Time = metav1.NewTime(time.Unix(0, 0))
					}
				}
			},
			state: "fail", words: []string{"the decision for container app was memory 994Mi and is 1Mi", "the decision is of 1970"},
		},
		"fails with less history": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) { s.Status.History = s.Status.History[:min(1, len(s.Status.History))] }
			},
			state: "fail", words: []string{`history entry "LowerBound: app cpu 50m->206m`},
		},
		"fails without the original resources": {
			operator: func(o *operator) { o.status = func(s *v1beta1.VerticalScaler) { s.Status.OriginalResources = nil } },
			state:    "fail", words: []string{"stored-rollout of v0.1.0: the original resources are lost"},
		},
		"fails with other original resources": {
			operator: func(o *operator) {
				o.status = func(s *v1beta1.VerticalScaler) {
					if h := s.Status.OriginalResources; h != nil {
						h.Containers[0].Requests.CPU = ptr.To(resource.MustParse("51m"))
						h.Containers = h.Containers[:1]
					}
				}
			},
			state: "fail", words: []string{"the original requests of cpu of container app were 50m and are 51m", "the original resources of container proxy are lost"},
		},
		"fails if the history is not read": {
			operator: func(o *operator) { o.save = nil },
			state:    "fail", words: []string{"does not save the history", "it has not read the history"},
		},
		"fails if the history is lost": {
			operator: func(o *operator) {
				o.save = func(c *v1beta1.VerticalScalerCheckpoint) {
					c.Spec.Containers[0].Data = (&history.Container{}).Encode()
					c.Spec.Containers = c.Spec.Containers[:1]
				}
			},
			state: "fail", words: []string{
				"container app was observed for 2m0s, and 0s are left", "the peak of memory of container app was 188743680 bytes and is 0",
				"the OOM kill of container app of 2026", "the history of container proxy is lost",
			},
		},
		"fails if a checkpoint is left": {
			operator: func(o *operator) { o.hoards = true },
			state:    "fail", words: []string{"after its deletion, after 3s still: VerticalScalerCheckpoint here/stored-in-place still exists"},
		},
		"fails if the stored history cannot be read": {
			operator: func(o *operator) {
				o.save = func(c *v1beta1.VerticalScalerCheckpoint) { c.Spec.Containers[0].Data = []byte{9} }
			},
			state: "fail", words: []string{"the stored history of container app cannot be read"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := healthy()
			if tc.operator != nil {
				tc.operator(o)
			}
			c := o.client(t)
			var problems []string
			var err error
			synctest.Test(t, func(t *testing.T) {
				problems, err = upgradeFrom(t.Context(), c, settingWith(c, ""), files, &Log{})
			})
			if err != nil {
				t.Fatal(err)
			}
			got := v1alpha3.TestResult{State: v1alpha3.PassState, Errors: problems}
			if len(problems) > 0 {
				got.State = v1alpha3.FailState
			}
			wants(t, got, tc.state, tc.words...)
			var left appsv1.DeploymentList
			if err := c.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
				t.Errorf("%d Deployments are left, %v", len(left.Items), err)
			}
		})
	}
}

// Additional evidence is not a loss.
func TestAdditionalEvidenceIsNoLoss(t *testing.T) {
	all, err := readStored(testdata, "v0.1.0", "here")
	if err != nil {
		t.Fatal(err)
	}
	before, learned := typed(t, all[0])
	now := before.DeepCopy()
	now.Status.Decision.Time = metav1.NewTime(now.Status.Decision.Time.Add(time.Hour))
	now.Status.Decision.Containers[0].Requests.CPU.Add(resource.MustParse("1m"))
	now.Status.Recommendation.ContainerRecommendations[0].Target.Memory.Add(resource.MustParse("1Mi"))
	now.Status.History = append([]v1beta1.HistoryEntry{{Time: metav1.Now(), Message: "Raise: something"}}, now.Status.History...)
	if lost := lostOfStatus(before, now); len(lost) > 0 {
		t.Errorf("lost: %q", lost)
	}
	more := learned.DeepCopy()
	container, err := history.Decode(more.Spec.Containers[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	container.Add(usage.Sample{CPUMillis: 360, MemoryBytes: 380 << 20, Time: container.NewestSample().Add(30 * time.Second)}, history.DefaultParams())
	more.Spec.Containers[0].Data = container.Encode()
	if lost := lostOfCheckpoint(learned, more); len(lost) > 0 {
		t.Errorf("lost: %q", lost)
	}
	if lost := lostOfCheckpoint(more, learned); len(lost) == 0 {
		t.Error("less evidence is no loss")
	}
}

func TestInvalidFixturesAreRejected(t *testing.T) {
	content, err := fs.ReadFile(testdata, "testdata/v0.1.0/stored.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, want string }{
		"half of it":    {string(content[:len(content)*2/3]), "v1"},
		"another kind":  {"kind: Secret\nmetadata: {name: a}", "has stored a Secret"},
		"no checkpoint": {"kind: Deployment\nmetadata: {name: a}", "for a are not complete"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{"testdata/v1/stored.yaml": {Data: []byte(tc.file)}}
			if all, err := readStored(files, "v1", "here"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("readStored() = %d, %v; want an error with %q", len(all), err, tc.want)
			}
		})
	}
	if versions, err := storedVersions(fstest.MapFS{}); err == nil {
		t.Errorf("without fixtures: %v", versions)
	}
}
