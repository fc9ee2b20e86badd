// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Each policy refuses with a message, or warns, and one that warns refuses nothing, not even if it fails. That the others are
// bound and fail closed is shown by TestEachPolicyRefusesWhateverIsMissing.
func TestEveryPolicyHasAMessage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(folder(), "*.yaml"))
	must.Succeed(t, err)
	for _, path := range files {
		file := filepath.Base(path)
		if file == "kustomization.yaml" {
			continue
		}
		if strings.HasPrefix(file, "warnings") {
			warns(t, file)
			continue
		}
		p, _ := read(t, file)
		for _, v := range p.Spec.Validations {
			if v.Reason == nil || *v.Reason != "Forbidden" || v.Message == "" && v.MessageExpression == "" {
				t.Errorf("%s has no message, or no 403, where it refuses: %s", file, v.Expression)
			}
		}
	}
}

func warns(t *testing.T, file string) {
	t.Helper()
	p, bindings := read(t, file)
	b := bindings[0]
	if *p.Spec.FailurePolicy != admissionregistrationv1.Ignore {
		t.Errorf("%s warns of its own failures", file)
	}
	if b.Spec.PolicyName != p.Name || !slices.Equal(b.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}) || b.Spec.MatchResources != nil {
		t.Errorf("%s: the binding is %+v", file, b.Spec)
	}
	if (p.Spec.ParamKind == nil) != (b.Spec.ParamRef == nil) || b.Spec.ParamRef != nil && *b.Spec.ParamRef.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
		t.Errorf("%s has the parameters %+v, bound to %+v", file, p.Spec.ParamKind, b.Spec.ParamRef)
	}
	for _, v := range p.Spec.Validations {
		if v.Message == "" || v.MessageExpression == "" {
			t.Errorf("%s has only one message, and none if that is too long: %s", file, v.Expression)
		}
	}
}

// The installed policies and those for installations by other means are the same, except
// for the service account.
func TestTheRenderedPoliciesMatchTheComponent(t *testing.T) {
	t.Parallel()
	const serviceAccount = "verticalscaler-operator"
	installed, account := policiesIn(t, "dist/install.yaml")
	alone, none := policiesIn(t, "dist/admission-policies.yaml")
	if diff := cmp.Diff(installed, alone); diff != "" || len(alone) != 28 {
		t.Errorf("%d objects in dist/admission-policies.yaml; those in dist/install.yaml (-installed +alone):\n%s", len(alone), diff)
	}
	if account != serviceAccount || none != "" {
		t.Errorf("the service accounts are %q and %q", account, none)
	}
	content, err := os.ReadFile(filepath.Join("..", "..", "bundle", "manifests", "verticalscaler-operator.clusterserviceversion.yaml"))
	must.Succeed(t, err)
	for _, match := range regexp.MustCompile(`serviceAccountName: (.*)`).FindAllStringSubmatch(string(content), -1) {
		if match[1] != serviceAccount {
			t.Errorf("the bundle has the service account %q", match[1])
		}
	}
	for _, object := range alone {
		metadata, _ := object["metadata"].(map[string]any)
		if metadata["namespace"] != nil {
			t.Errorf("%v has a namespace", metadata["name"])
		}
	}
}

// policiesIn returns the policies and bindings in a file, and the name of the service
// account in it.
func policiesIn(t *testing.T, path string) (policies []map[string]any, account string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", path))
	must.Succeed(t, err)
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch object["kind"] {
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			policies = append(policies, object)
		case "ServiceAccount":
			metadata, _ := object["metadata"].(map[string]any)
			account, _ = metadata["name"].(string)
		}
	}
	return policies, account
}
