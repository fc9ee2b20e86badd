// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// What openshift-preflight checks, as far as it needs no cluster. The hubs require only that OLM can deploy the bundle, which
// "make test-olm" shows. These are for certification.
var preflightRules = []rule{
	{
		name: "feature annotations are answered", source: preflight + "policy/operator/required_annotations.go infraAnnotations",
		applies: withBundle, check: featureAnnotations,
	},
	{
		name: "it runs in a restricted network if all images have digests", source: preflight + "policy/operator/restricted_network_aware.go validate",
		applies: withBundle, check: restrictedNetwork,
	},
	{
		name: "all images are related images", source: preflight + "policy/operator/related_images.go validate",
		applies: withBundle, check: relatedImages,
	},
}

// The annotations of features by their last part: required ones, then optional ones.
var (
	requiredFeatures = []string{"disconnected", "fips-compliant", "proxy-aware", "tls-profiles", "token-auth-aws", "token-auth-azure", "token-auth-gcp"}
	optionalFeatures = []string{"cnf", "cni", "csi"}
)

const featurePrefix = "features.operators.openshift.io/"

func featureAnnotations(s *submission) (out []string) {
	annotations := s.bundle.CSV.Annotations
	for _, name := range requiredFeatures {
		if _, ok := annotations[featurePrefix+name]; !ok {
			out = append(out, featurePrefix+name+" is missing")
		}
	}
	for key, value := range annotations {
		name, ok := strings.CutPrefix(key, featurePrefix)
		switch {
		case !ok:
		case !slices.Contains(requiredFeatures, name) && !slices.Contains(optionalFeatures, name):
			out = append(out, key+" is not known")
		case value != "true" && value != "false":
			out = append(out, fmt.Sprintf("%s is %q, must be true or false", key, value))
		}
	}
	slices.Sort(out)
	return out
}

// restrictedNetwork requires that the annotation says what the images say.
func restrictedNetwork(s *submission) (out []string) {
	tagged := ""
	for _, image := range s.bundle.CSV.Spec.RelatedImages {
		if !strings.Contains(image.Image, "@sha256:") {
			tagged = image.Image
		}
	}
	pinned := tagged == "" && len(s.bundle.CSV.Spec.RelatedImages) > 0
	switch claimed := s.bundle.CSV.Annotations[featurePrefix+"disconnected"] == "true"; {
	case claimed && tagged != "":
		out = append(out, "disconnected is true, but the image "+tagged+" has no digest")
	case claimed && !pinned:
		out = append(out, "disconnected is true, but there are no related images")
	case !claimed && pinned:
		out = append(out, "disconnected is not true, although all images have digests")
	}
	if pinned && !slices.ContainsFunc(s.environment(), func(name string) bool { return strings.HasPrefix(name, "RELATED_IMAGE_") }) {
		out = append(out, "no environment variable begins with RELATED_IMAGE_")
	}
	return out
}

// environment are the names of the operator's environment variables.
func (s *submission) environment() (names []string) {
	for _, d := range s.bundle.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
			for _, variable := range c.Env {
				names = append(names, variable.Name)
			}
		}
	}
	return names
}

func relatedImages(s *submission) (out []string) {
	related := map[string]bool{}
	for _, image := range s.bundle.CSV.Spec.RelatedImages {
		related[image.Image] = true
	}
	images := []string{s.bundle.CSV.Annotations["containerImage"]}
	for _, d := range s.bundle.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
			images = append(images, c.Image)
			for _, variable := range c.Env {
				if strings.HasPrefix(variable.Name, "RELATED_IMAGE_") {
					images = append(images, variable.Value)
				}
			}
		}
	}
	slices.Sort(images)
	for _, image := range slices.Compact(images) {
		if !related[image] {
			out = append(out, image+" is not in spec.relatedImages")
		}
	}
	return out
}
