// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package apierror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// answer is an answer of the API server.
func answer(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: "Failure", Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Name: "web-1", Kind: "pods", Causes: causes},
	}}
}

// The messages are from kube-apiserver 1.37.
func TestOf(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	field := func(name string) metav1.StatusCause {
		return metav1.StatusCause{Type: "FieldValueInvalid", Field: name}
	}
	cases := map[string]struct {
		err  error
		want string
	}{
		"a missing permission": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: User "system:serviceaccount:vs:vs" cannot patch resource "pods/resize" in API group "" in the namespace "shop"`),
			"Forbidden",
		},
		"a missing permission to read": {
			answer(403, "Forbidden", `deployments.apps "web" is forbidden: User "system:serviceaccount:vs:vs" cannot get resource "deployments" in API group "apps" in the namespace "shop"`),
			"Forbidden",
		},
		"a missing permission to create": {
			answer(403, "Forbidden", `deployments.apps "web" is forbidden: User "system:serviceaccount:vs:vs" cannot create resource "deployments" in API group "apps" in the namespace "shop"`),
			"Forbidden",
		},
		"a node that is too small": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: node "n" didn't have enough allocatable resources: cpu, requested: 64000, allocatable: 4000`, metav1.StatusCause{Type: "NodeCapacity"}),
			"NodeCapacity",
		},
		"an unsupported platform": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: windows`, metav1.StatusCause{Type: "UnsupportedPlatform"}),
			"Unsupported",
		},
		"a deleted node": {answer(403, "Forbidden", `pods "web-1" is forbidden: node "n" not found`), "Rejected"},
		"a ResourceQuota": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1, limited: requests.cpu=1`),
			"QuotaExceeded",
		},
		"a LimitRange's maximum of a container": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: maximum cpu usage per Container is 150m, but limit is 200m`), "LimitRange",
		},
		"a LimitRange's minimum of a pod": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: [minimum memory usage per Pod is 1Gi, but request is 128Mi, maximum memory usage per Pod is 2Gi.  No limit is specified]`), "LimitRange",
		},
		"a LimitRange's ratio": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000`), "LimitRange",
		},
		"Pod Security": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`), "Rejected",
		},
		"a terminating namespace": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: unable to create new content in namespace shop because it is being terminated`, metav1.StatusCause{Type: "NamespaceTerminating", Field: "metadata.namespace"}),
			"NamespaceTerminating",
		},
		"another QoS class": {
			answer(422, "Invalid", `Pod "web-1" is invalid: spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing`, field("spec")),
			"QoSChange",
		},
		"a request above its limit": {
			answer(422, "Invalid", `Pod "web-1" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`, field("spec.containers[0].resources.requests")),
			"Rejected",
		},
		"a removed limit": {
			answer(422, "Invalid", `Pod "web-1" is invalid: spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed`, field("spec.containers[0].resources.limits")),
			"Rejected",
		},
		"a node without support": {
			answer(422, "Invalid", `Pod "web-1" is invalid: spec: Forbidden: Pod running on node without support for resize`, field("spec")),
			"Unsupported",
		},
		"a pod of Windows": {
			answer(422, "Invalid", `Pod "web-1" is invalid: spec: Forbidden: windows pods cannot be resized`, field("spec")),
			"Unsupported",
		},
		"pod-level resources before Kubernetes 1.36": {
			answer(422, "Invalid", `Pod "web-1" is invalid: []: Forbidden: pods with pod-level resources cannot be resized`),
			"Unsupported",
		},
		"pod-level resources without the feature gate": {
			answer(422, "Invalid", `Pod "web-1" is invalid: []: Forbidden: resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled`),
			"Unsupported",
		},
		"a node that cannot resize pod-level resources": {
			answer(403, "Forbidden", `pods "web-1" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`),
			"Unsupported",
		},
		"a ValidatingAdmissionPolicy": {
			answer(422, "Invalid", `pods "web-1" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false`),
			"Rejected",
		},
		"our own admission policy": {
			answer(403, "Forbidden", `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'verticalscaler-operator-deployments' with binding 'verticalscaler-operator-deployments' denied request: The operator may only change CPU and memory of a Deployment's containers, but this request changes its metadata`),
			"Rejected",
		},
		"a webhook that rejects with a 400": {answer(400, "BadRequest", `admission webhook "w" denied the request: no`), "Rejected"},
		"a webhook that is down": {
			answer(500, "InternalError", `Internal error occurred: failed calling webhook "w.example.com": Post "https://w.svc:443/": connection refused`), "Rejected",
		},
		"an API server that cannot resize": {
			apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", pods, "web-1", "404 page not found", 0, true), "Unsupported",
		},

		// These do not reject the write.
		"another pod with that name": {answer(422, "Invalid", `Pod "web-1" is invalid: metadata.uid: Invalid value: "x": field is immutable`, field("metadata.uid")), ""},
		"a pod that has changed":     {apierrors.NewConflict(pods, "web-1", errors.New("the object has been modified")), ""},
		"a deleted pod":              {apierrors.NewNotFound(pods, "web-1"), ""},
		"an owner kind that admission does not know yet": {
			answer(403, "Forbidden", `deployments.apps "web" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion autoscaling.verticalscaler.io/v1beta1 Kind ScaledDeployment: no matches for kind "ScaledDeployment" in version "autoscaling.verticalscaler.io/v1beta1"`), "",
		},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), ""},
		"an internal error": {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), ""},
		"a timeout":         {apierrors.NewTimeoutError("later", 1), ""},
		"no answer":         {context.DeadlineExceeded, ""},
		"no error":          {nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, fmt.Errorf("resizing: %w", tc.err)} {
				if tc.err == nil {
					err = nil
				}
				got := Of(err)
				if got.Reason != tc.want || (got.Message == "") != (tc.want == "") {
					t.Errorf("Of(%v) = %+v, want %q", err, got, tc.want)
				}
			}
		})
	}
}

// FuzzOf classifies any answer of an API server, a proxy before it or a webhook behind it. A rejection
// has a reason that is valid in a condition, and the reason alone depends on the answer.
func FuzzOf(f *testing.F) {
	f.Add(int32(403), "Forbidden", `pods "web-1" is forbidden: exceeded quota: q`, "", "")
	f.Add(int32(422), "Invalid", `Pod "web-1" is invalid: Pod QOS Class may not change`, "FieldValueInvalid", "metadata.uid")
	f.Add(int32(429), "TooManyRequests", "Cannot evict", "DisruptionBudget", "")
	f.Add(int32(500), "", "This pod has more than one PodDisruptionBudget", "", "")
	f.Add(int32(404), "NotFound", "<html>", "UnexpectedServerResponse", "")
	f.Fuzz(func(t *testing.T, code int32, reason, message, cause, field string) {
		err := answer(code, metav1.StatusReason(reason), message, metav1.StatusCause{Type: metav1.CauseType(cause), Field: field, Message: message})
		bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: metav1.StatusReason(reason), Message: message}}
		for _, err := range []error{err, bare} {
			got := Of(err)
			eviction, after := OfEviction(err)
			if again, wait := OfEviction(fmt.Errorf("evicting: %w", err)); again != eviction || wait != after {
				t.Errorf("OfEviction() = %+v, and wrapped %+v", eviction, again)
			}
			for _, r := range []Rejection{got, eviction} {
				if r.Reason != "" && !validReason.MatchString(r.Reason) {
					t.Errorf("the reason %q", r.Reason)
				}
				if r.Reason == "" && r.Message != "" {
					t.Errorf("the message %q without a reason", r.Message)
				}
			}
			if got.Reason != "" && apierrors.IsConflict(err) {
				t.Errorf("a conflict is a rejection: %+v", got)
			}
		}
	})
}

var validReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
