// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release has the commands that install the parts of a release beside the operator. Messages name them, so that
// users need no checkout of the project.
package release

import (
	"fmt"
	"regexp"
)

const (
	// Operator is the whole operator.
	Operator = "install.yaml"
	// NewPods is the policy with which the API server sizes new pods.
	NewPods = "new-pods.yaml"
	// AdmissionPolicies confine the operator, and users to their own rights.
	AdmissionPolicies = "admission-policies.yaml"
	// Recreate is the right to evict pods.
	Recreate = "recreate.yaml"
	// Policies are the rights to create scalers, for ScalingPolicies and ClusterScalingPolicies.
	Policies = "policies.yaml"

	// downloads is the address of published releases.
	downloads = "https://github.com/verticalscaler/verticalscaler-operator/releases"

	// namespace is the operator's namespace in the published files.
	namespace = "verticalscaler-system"
)

// ServiceAccount is the name of the operator's ServiceAccount, in each installation.
const ServiceAccount = "verticalscaler-operator"

// AdmissionPolicyNames are the names of the policies in AdmissionPolicies.
var AdmissionPolicyNames = []string{
	"verticalscaler-checkpoints", "verticalscaler-crd-deletion", "verticalscaler-operator-deployments", "verticalscaler-operator-evictions", "verticalscaler-operator-objects",
	"verticalscaler-operator-owned", "verticalscaler-operator-pods", "verticalscaler-operator-scalers", "verticalscaler-promotions",
	"verticalscaler-users", "verticalscaler-users-policies", "verticalscaler-warnings", "verticalscaler-warnings-deletion", "verticalscaler-warnings-target",
}

// VersionLabel is the label of a policy with the version of its release.
const VersionLabel = "app.kubernetes.io/version"

// Release is the release of the running operator. The zero value is the latest one, in the usual namespace.
type Release struct {
	// Version is the operator's version, such as v0.1.0. Anything else was built from a checkout, which has the files. Empty is
	// the latest release.
	Version string
	// Namespace is the operator's namespace. Empty means the namespace of the published files.
	Namespace string
}

var isVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// Has reports whether a file of that version belongs to the release. A build from a checkout has no version to compare.
func (r Release) Has(version string) bool {
	return !isVersion.MatchString(r.Version) || r.Version == version
}

// Install is the command that installs one of the files, in a shell. Recreate and Policies grant rights to the operator's
// service account, so the command names its namespace.
func (r Release) Install(file string) string {
	url, get := downloads+"/latest/download/"+file, "curl -sSL"
	switch {
	case isVersion.MatchString(r.Version):
		url = downloads + "/download/" + r.Version + "/" + file
	case r.Version != "":
		url, get = "dist/"+file, "cat"
	}
	namesAccount := file == Recreate || file == Policies
	if namesAccount && r.Namespace != "" && r.Namespace != namespace {
		return fmt.Sprintf("%s %s | sed 's/namespace: .*/namespace: %s/' | kubectl apply --server-side -f -", get, url, r.Namespace)
	}
	return "kubectl apply --server-side -f " + url
}
