// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// A policy is deleted with all its scalers and what they have learned. After a restore, the operator has created the scalers
// again, and they are promoted and know what they knew: there is no usage from which they could have learned it.
func TestABackupRestoresThePromotedScalersOfAPolicy(t *testing.T) {
	const many = 3
	namespace := env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	use := testkit.NewUsage()
	testkit.InParallel(t, many, func(i int) error { return running(t.Context(), namespace, nameOf(i)) })
	env.StartOperator(t, c, use, namespace)
	kubelets(t)
	policy := policyOf(namespace, "local", func(p *v1beta1.ScalingPolicy) {
		p.Spec.Template.UpdatePolicy.UpdateMode, p.Spec.Template.UpdatePolicy.CooldownSeconds = v1beta1.UpdateModeInPlace, ptr.To(int32(0))
		p.Spec.Rollout = v1beta1.PolicyRollout{
			Start: v1beta1.UpdateModeRecommend, AfterSeconds: ptr.To(int32(0)), MaxConcurrentPercent: ptr.To(int32(100)), VerificationSeconds: ptr.To(int32(3600)),
		}
	})
	create(t, policy.DeepCopy())
	for i := range many {
		use.Set(namespace, podOf(nameOf(i)), "app", 300, 240<<20)
	}
	scalers := func() (list v1beta1.VerticalScalerList) {
		t.Helper()
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return list
	}
	// known is what a scaler recommends, and since when it is promoted.
	known := func(s v1beta1.VerticalScaler) string {
		text := s.Annotations[v1beta1.PromotedAnnotation]
		if r := s.Status.Recommendation; r != nil {
			for _, c := range r.ContainerRecommendations {
				text += fmt.Sprintf(" %s %s %s", c.ContainerName, c.Target.CPU, c.Target.Memory)
			}
		}
		return text
	}
	promoted := func() string {
		list := scalers()
		for _, s := range list.Items {
			if !fleet.IsPromoted(&s) || s.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeInPlace {
				return fmt.Sprintf("scaler %s is promoted: %t, in mode %s: %s", s.Name, fleet.IsPromoted(&s), s.Spec.UpdatePolicy.UpdateMode, known(s))
			}
		}
		if len(list.Items) != many {
			return fmt.Sprintf("there are %d scalers", len(list.Items))
		}
		return ""
	}
	testkit.Eventually(t, soon, promoted)
	use.Fail(errors.New("not known for the moment"))
	testkit.Eventually(t, soon, func() string {
		for _, s := range scalers().Items {
			if c := meta.FindStatusCondition(s.Status.Conditions, "RecommendationProvided"); c == nil || c.Reason != "MetricsUnavailable" {
				return fmt.Sprintf("scaler %s may still learn: %+v", s.Name, c)
			}
		}
		return ""
	})
	before := map[string]string{}
	for _, s := range scalers().Items {
		before[s.Name] = known(s)
	}
	run, file := plugin(t), filepath.Join(t.TempDir(), "backup.yaml")
	if out, errOut, code := run("backup", "-n", namespace, "-o", file); code != 0 || !strings.Contains(out, "3 scalers, 3 of them with a history, 0 ScaledDeployments, 1 policies") {
		t.Fatalf("exit code %d: %s%s", code, errOut, out)
	}

	remove := func(object client.Object) {
		t.Helper()
		if err := env.Client.Delete(t.Context(), object); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	remove(policyOf(namespace, "local"))
	testkit.Eventually(t, soon, func() string { // The operator deletes them.
		if n := len(scalers().Items); n > 0 {
			return fmt.Sprintf("%d scalers are left", n)
		}
		return ""
	})
	for i := range many { // The garbage collector would.
		remove(&v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(i)}})
	}

	if out, errOut, code := run("restore", "-f", file, "--max-ahead=24h", "--dry-run"); code != 0 || !strings.Contains(out, "restored once ScalingPolicy local has created it (server dry run)") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), &v1beta1.ScalingPolicy{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has created the policy: %v", err)
	}
	out, errOut, code := run("restore", "-f", file, "--max-ahead=24h")
	if code != 0 || !strings.Contains(out, "ScalingPolicy "+namespace+"/local created\n") || strings.Count(out, " of usage restored") != many {
		t.Fatalf("exit code %d: %s%s", code, errOut, out)
	}
	testkit.Eventually(t, soon, promoted)
	testkit.Eventually(t, soon, func() string {
		for _, s := range scalers().Items {
			if got := known(s); got != before[s.Name] {
				return fmt.Sprintf("scaler %s: %s, before %s", s.Name, got, before[s.Name])
			}
			if !fleet.IsGenerated(&s) {
				return fmt.Sprintf("scaler %s is not of the policy", s.Name)
			}
			var checkpoint v1beta1.VerticalScalerCheckpoint
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(&s), &checkpoint); err != nil || !metav1.IsControlledBy(&checkpoint, &s) {
				return fmt.Sprintf("the checkpoint of scaler %s: %v, %+v", s.Name, err, checkpoint.OwnerReferences)
			}
		}
		return ""
	})
}
