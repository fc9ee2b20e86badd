// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The kinds of the tested examples.
const (
	scalerKind = "VerticalScaler"
	ownerKind  = v1beta1.ScaledDeploymentKind
	policyKind = v1beta1.ScalingPolicyKind
)

// madeBy is the field manager of all objects that the tests write, and the value of a label
// on them.
const madeBy = "verticalscaler-scorecard"

// every is the polling interval.
const every = 100 * time.Millisecond

// Scheme knows the kinds that the tests write.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	return scheme, nil
}

// Connect makes a client of a cluster.
func Connect(config *rest.Config) (client.Client, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = madeBy
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return client.WithFieldOwner(c, madeBy), nil
}

// connect makes the client of a test, and makes sure that the cluster has our kinds.
func connect(ctx context.Context, s Setting) (client.Client, error) {
	c, err := s.Connect()
	if err != nil {
		return nil, err
	}
	for _, list := range []client.ObjectList{
		&v1beta1.VerticalScalerList{}, &v1beta1.VerticalScalerCheckpointList{}, &v1beta1.ScaledDeploymentList{}, &v1beta1.ScalingPolicyList{},
	} {
		err := c.List(ctx, list, client.InNamespace(s.Namespace), client.Limit(1))
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			kind := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*v1beta1."), "List")
			return nil, fmt.Errorf("the cluster does not serve %s, %s: install the operator first", kind, v1beta1.GroupVersion)
		case err != nil:
			return nil, fmt.Errorf("looking for objects in namespace %s: %w", s.Namespace, err)
		}
	}
	return c, nil
}

// await polls until nothing is missing. On a timeout, the error contains what is missing.
func await(ctx context.Context, wait time.Duration, look func(ctx context.Context) (missing []string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		missing, err := look(ctx)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return &missingError{wait: wait, missing: missing}
		case <-time.After(every):
		}
	}
}

// missingError says what a test has waited for.
type missingError struct {
	wait    time.Duration
	missing []string
}

func (e *missingError) Error() string {
	return fmt.Sprintf("after %s still: %s", e.wait, strings.Join(e.missing, "; "))
}

// create creates an object. One that exists already is an error: the test does not own it.
func create(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%s exists already: use another namespace, or delete it", said(object))
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", said(object), err)
	}
	return nil
}

func said(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}

// remove deletes objects in order, and waits until none exists, including objects that the
// garbage collector deletes with them.
func remove(ctx context.Context, c client.Client, wait time.Duration, objects ...client.Object) error {
	// Even after the test's timeout.
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, object := range objects {
		// With its pods: none exists when the Deployment no longer exists.
		err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting %s: %w", said(object), err))
		}
	}
	for _, object := range objects {
		if err := awaitGone(ctx, c, wait, object); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func awaitGone(ctx context.Context, c client.Client, wait time.Duration, object client.Object) error {
	err := await(ctx, wait, func(ctx context.Context) ([]string, error) {
		live, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", object)
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(object), live)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", said(object), err)
		case len(live.GetFinalizers()) > 0:
			return []string{fmt.Sprintf("%s is blocked by the finalizers %v", said(object), live.GetFinalizers())}, nil
		}
		return []string{said(object) + " still exists"}, nil
	})
	if err != nil {
		return fmt.Errorf("after its deletion, %w", err)
	}
	return nil
}

// deploymentFor returns a Deployment with small pods that any namespace allows.
func deploymentFor(s Setting, name string, containers []string) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": madeBy}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					AutomountServiceAccountToken:  ptr.To(false),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
				},
			},
		},
	}
	for _, container := range containers {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{
			Name: container, Image: s.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		})
	}
	return d
}
