// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

// kinds are the kinds of workloads that are reported.
var kinds = []string{prometheus.Deployment, prometheus.StatefulSet, prometheus.DaemonSet, prometheus.CronJob, prometheus.Rollout}

// list calls each for the workloads of a kind, with a Deployment that has the name, the labels, the owners, the number of pods
// and the template of one.
func list(ctx context.Context, c client.Client, kind string, each func(*appsv1.Deployment), options ...client.ListOption) error {
	switch kind {
	case prometheus.StatefulSet:
		return kube.List(ctx, c, func(page *appsv1.StatefulSetList) {
			for _, s := range page.Items {
				each(like(s.ObjectMeta, s.Spec.Replicas, s.Spec.Template))
			}
		}, options...)
	case prometheus.DaemonSet:
		return kube.List(ctx, c, func(page *appsv1.DaemonSetList) {
			for _, d := range page.Items {
				each(like(d.ObjectMeta, &d.Status.DesiredNumberScheduled, d.Spec.Template))
			}
		}, options...)
	case prometheus.CronJob:
		return kube.List(ctx, c, func(page *batchv1.CronJobList) {
			for _, j := range page.Items {
				pods := j.Spec.JobTemplate.Spec.Parallelism
				if ptr.Deref(j.Spec.Suspend, false) {
					pods = ptr.To[int32](0)
				}
				each(like(j.ObjectMeta, pods, j.Spec.JobTemplate.Spec.Template))
			}
		}, options...)
	case prometheus.Rollout:
		return listRollouts(ctx, c, each, options...)
	}
	return kube.List(ctx, c, func(page *appsv1.DeploymentList) {
		for i := range page.Items {
			each(&page.Items[i])
		}
	}, options...)
}

func listRollouts(ctx context.Context, c client.Client, each func(*appsv1.Deployment), options ...client.ListOption) error {
	all, err := kube.Untyped(ctx, c, kube.RolloutKind, options...)
	if err != nil {
		return err
	}
	for _, object := range all {
		var r rollout
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &r); err != nil {
			return fmt.Errorf("reading Rollout %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
		each(like(r.ObjectMeta, r.Spec.Replicas, r.Spec.Template))
	}
	return nil
}

// rollout has the fields of an Argo Rollout that are read. With a workloadRef, its template is empty, so it has
// no containers.
type rollout struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
}

// like is a Deployment with the pods of another workload; nil for the default of one pod.
func like(about metav1.ObjectMeta, pods *int32, template corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: about, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(ptr.Deref(pods, 1)), Template: template}}
}

// rolloutHash is the label of Argo Rollouts that is also the end of the ReplicaSet's name.
const rolloutHash = "rollouts-pod-template-hash"

// workloadOf is the workload of a pod; empty if it has none that is reported.
func workloadOf(pod *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "", ""
	}
	switch owner.Kind {
	case prometheus.StatefulSet, prometheus.DaemonSet:
		return owner.Kind, owner.Name
	case "Job":
		if i := strings.LastIndex(owner.Name, "-"); i > 0 {
			return prometheus.CronJob, owner.Name[:i]
		}
	case "ReplicaSet":
		if name, isRollout := strings.CutSuffix(owner.Name, "-"+pod.Labels[rolloutHash]); isRollout {
			return prometheus.Rollout, name
		}
	}
	return prometheus.Deployment, kube.DeploymentOfPod(pod)
}
