// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/test/scorecard"
)

// storedYAML are the Deployments and scalers that are recorded. Their usage is what
// the annotations say.
//
//go:embed stored.yaml
var storedYAML []byte

// oomAnnotation makes the fake nodes kill a pod's first container for its memory.
const oomAnnotation = "kwok.verticalscaler.io/oom"

// recordStored lets the operator size two Deployments, one in place and one through its
// template, by usage and then after an OOM kill of each, with the configuration and at
// the pace of a real installation. What it has stored by then is written to the folder.
func (r *runner) recordStored(ctx context.Context) error {
	objects, err := stage.Decode(storedYAML)
	if err != nil {
		return err
	}
	if err := stage.Apply(ctx, r.admin, objects...); err != nil {
		return err
	}
	r.say("Waiting until both scalers have sized their Deployments, which needs two minutes of usage")
	if err := r.awaitStored(ctx, 1); err != nil {
		return err
	}
	r.say("Killing a pod of each for its memory")
	for _, scaler := range storedScalers() {
		if err := r.kill(ctx, scaler); err != nil {
			return err
		}
	}
	if err := r.awaitStored(ctx, 2); err != nil {
		return err
	}
	return r.writeStored(ctx)
}

func storedScalers() []*v1beta1.VerticalScaler {
	var scalers []*v1beta1.VerticalScaler
	for _, name := range []string{"stored-in-place", "stored-rollout"} {
		scalers = append(scalers, &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: scorecard.RecordedNamespace, Name: name}})
	}
	return scalers
}

// until looks until nothing is missing, for ten minutes at most.
func (r *runner) until(ctx context.Context, look func() (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		missing, err := look()
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %s", missing)
		case <-r.operator.Ended:
			return errors.New("the operator has ended")
		case <-time.After(time.Second):
		}
	}
}

// awaitStored returns once each scaler has made so many decisions, and its pods have
// what was decided.
func (r *runner) awaitStored(ctx context.Context, decisions int) error {
	return r.until(ctx, func() (string, error) {
		for _, scaler := range storedScalers() {
			if err := r.admin.Get(ctx, client.ObjectKeyFromObject(scaler), scaler); err != nil {
				return "", fmt.Errorf("reading a scaler: %w", err)
			}
			applied := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionApplied)
			if len(scaler.Status.History) < decisions || applied == nil || applied.Status != metav1.ConditionTrue {
				return fmt.Sprintf("%s has made %d of %d decisions, and says %+v", scaler.Name, len(scaler.Status.History), decisions, applied), nil
			}
		}
		return "", nil
	})
}

// kill makes one pod of a scaler's Deployment run out of memory.
func (r *runner) kill(ctx context.Context, scaler *v1beta1.VerticalScaler) error {
	var pods corev1.PodList
	if err := r.admin.List(ctx, &pods, client.InNamespace(scaler.Namespace), client.MatchingLabels{"app": scaler.Name}); err != nil {
		return fmt.Errorf("listing the pods of %s: %w", scaler.Name, err)
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning })
	if i < 0 {
		return fmt.Errorf("no pod of %s runs", scaler.Name)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"once"}}}`, oomAnnotation)
	if err := r.admin.Patch(ctx, &pods.Items[i], client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("killing a pod of %s: %w", scaler.Name, err)
	}
	return nil
}

// writeStored writes what is stored on the API server, less what it fills in by itself.
func (r *runner) writeStored(ctx context.Context) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, `# What version %s has stored on the API server: two scalers, their Deployments and what was learned about these.
# Recorded from a running operator by hack/scorecard -record, and not to be changed: see ../README.md.
`, r.programs.version)
	for _, scaler := range storedScalers() {
		for _, gvk := range []struct{ apiVersion, kind string }{
			{"apps/v1", "Deployment"},
			{v1beta1.GroupVersion.String(), "VerticalScaler"},
			{v1beta1.GroupVersion.String(), "VerticalScalerCheckpoint"},
		} {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(gvk.apiVersion)
			object.SetKind(gvk.kind)
			if err := r.admin.Get(ctx, client.ObjectKeyFromObject(scaler), object); err != nil {
				return fmt.Errorf("reading what is stored: %w", err)
			}
			content, err := yaml.Marshal(tidied(object).Object)
			if err != nil {
				return fmt.Errorf("encoding what is stored: %w", err)
			}
			out.WriteString("---\n")
			out.Write(content)
		}
	}
	if err := os.MkdirAll(r.record, 0o755); err != nil {
		return fmt.Errorf("making the folder to record to: %w", err)
	}
	file := filepath.Join(r.record, scorecard.StoredFile)
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	r.say("Recorded to %s: %d lines", file, strings.Count(out.String(), "\n"))
	return nil
}

// tidied is the object without what says nothing about the operator. Which fields of a
// Deployment are ours does.
func tidied(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	ours := slices.DeleteFunc(out.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != "verticalscaler" || object.GetKind() != "Deployment"
	})
	unstructured.RemoveNestedField(out.Object, "metadata", "managedFields")
	if len(ours) > 0 {
		out.SetManagedFields(ours)
	}
	for _, field := range []string{"resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	if object.GetKind() == "Deployment" {
		unstructured.RemoveNestedField(out.Object, "metadata", "annotations")
		unstructured.RemoveNestedField(out.Object, "status")
	}
	return out
}
