// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/validation"
)

const annotationPrefix = "operators.operatorframework.io.bundle."

// What a bundle must be like.
var bundleRules = []rule{
	{
		name: "package, name and folder agree", source: static + "common/bundle.py check_operator_name",
		applies: withBundle, check: operatorName,
	},
	{
		name: "version and folder agree", source: static + "common/bundle.py check_operator_version_directory_name",
		applies: withBundle, check: versionFolder,
	},
	{
		name: "there is no NetworkPolicy", source: static + "common/bundle.py check_network_policy_presence",
		applies: withBundle, check: noNetworkPolicy,
	},
	{
		name: "the replaced version exists", source: static + "common/bundle.py check_replaces_availability",
		applies: withoutCatalog, check: replacedVersion,
	},
	{
		name: "required fields are there", source: static + "community/bundle.py check_required_fields",
		applies: withBundle, check: requiredFields,
	},
	{
		name: "operator-sdk's validators pass", source: static + "community/bundle.py check_osdk_bundle_validate_operatorhub, check_osdk_bundle_validate_operator_framework; " +
			preflight + "bundle/bundle.go Validate",
		applies: withBundle, check: validators,
	},
	{
		name: "minKubeVersion fits the versions of OpenShift", source: static + "community/bundle.py check_api_version_constraints; " +
			preflight + "bundle/bundle.go ocpToKubeVersion",
		applies: withBundle, check: kubernetesVersions,
	},
	{
		name: "the image's Dockerfile can be generated", source: pipelines + "operatorcert/entrypoints/bundle_dockerfile.py generate_dockerfile_content",
		applies: withBundle, check: dockerfile,
	},
}

func operatorName(s *submission) (out []string) {
	pkg, _ := s.annotations[annotationPrefix+"package.v1"].(string)
	name, _, _ := strings.Cut(s.bundleName(), ".")
	if pkg != packageName {
		out = append(out, fmt.Sprintf("the package is %q, the folder %s", pkg, packageName))
	}
	if name != packageName {
		out = append(out, fmt.Sprintf("the ClusterServiceVersion is of %q, the folder %s", name, packageName))
	}
	return out
}

func versionFolder(s *submission) []string {
	if got := text(s.csv, "spec", "version"); got != s.version() {
		return []string{fmt.Sprintf("the version is %q, the folder %s", got, s.version())}
	}
	return nil
}

func noNetworkPolicy(s *submission) (out []string) {
	for _, file := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[file]
		if text(o, "kind") == "NetworkPolicy" && strings.HasPrefix(text(o, "apiVersion"), "networking.k8s.io/") {
			out = append(out, file+" is a NetworkPolicy, which OLM does not install")
		}
	}
	return out
}

func replacedVersion(s *submission) []string {
	if replaced := text(s.csv, "spec", "replaces"); replaced != "" {
		return []string{fmt.Sprintf("spec.replaces is %s, which the hub may not have: semver-mode orders the versions", replaced)}
	}
	return nil
}

// requiredFields has the fields that fail a pull request, and those that the hub warns about.
func requiredFields(s *submission) (out []string) {
	pattern := func(expression string) func(any) bool {
		compiled := regexp.MustCompile(`^(?:` + expression + `)`)
		return func(value any) bool { return compiled.MatchString(fmt.Sprint(value)) }
	}
	for _, field := range []struct {
		path  string
		valid func(any) bool
	}{
		{"metadata.annotations.capabilities", oneOf(capabilities)},
		{"metadata.annotations.categories", oneOf(categories)},
		{"metadata.annotations.containerImage", pattern(`([^/]+/)+[^/:]+:.+`)},
		{"metadata.annotations.createdAt", timestamp},
		{"metadata.annotations.repository", pattern(`https?://.+`)},
		{"metadata.annotations.support", pattern(`(?s).{3,}`)},
		{"metadata.annotations.description", pattern(`(?s).{10,}`)},
		{"spec.displayName", pattern(`.{3,50}`)},
		{"spec.description", pattern(`(?s).{20,}`)},
		{"spec.icon", listOf(icon, "base64data", "mediatype")},
		{"spec.version", version},
		{"spec.maintainers", listOf(nil, "name", "email")},
		{"spec.provider.name", pattern(`.{3,}`)},
		{"spec.links", listOf(nil, "name", "url")},
		{"spec.keywords", keywords},
	} {
		switch value := lookup(s.csv, strings.Split(field.path, ".")...); {
		case value == nil:
			out = append(out, field.path+" is missing")
		case !field.valid(value):
			out = append(out, fmt.Sprintf("%s has an invalid value", field.path))
		}
	}
	return out
}

var (
	capabilities = []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}
	categories   = []string{
		"AI/Machine Learning", "Application Runtime", "Big Data", "Cloud Provider", "Developer Tools", "Database", "Drivers and plugins",
		"Integration & Delivery", "Logging & Tracing", "Modernization & Migration", "Monitoring", "Networking", "OpenShift Optional",
		"Security", "Storage", "Streaming & Messaging",
	}
)

// oneOf is for a text, or a list with commas, of known words.
func oneOf(known []string) func(any) bool {
	return func(value any) bool {
		for word := range strings.SplitSeq(fmt.Sprint(value), ",") {
			if !slices.Contains(known, strings.TrimSpace(word)) {
				return false
			}
		}
		return true
	}
}

func timestamp(value any) bool {
	_, err := time.Parse(time.RFC3339, fmt.Sprint(value))
	return err == nil
}

func version(value any) bool {
	_, err := semver.Parse(fmt.Sprint(value))
	return err == nil
}

func keywords(value any) bool {
	list, ok := value.([]any)
	return ok && len(list) > 0 && !slices.ContainsFunc(list, func(item any) bool { _, ok := item.(string); return !ok })
}

// listOf is for a list of objects with texts.
func listOf(valid func(map[string]any) bool, fields ...string) func(any) bool {
	return func(value any) bool {
		list, ok := value.([]any)
		return ok && len(list) > 0 && !slices.ContainsFunc(list, func(item any) bool {
			o, _ := item.(map[string]any)
			for _, name := range fields {
				if _, ok := o[name].(string); !ok {
					return true
				}
			}
			return valid != nil && !valid(o)
		})
	}
}

func icon(o map[string]any) bool {
	data := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text(o, "base64data"))
	_, err := base64.StdEncoding.DecodeString(data)
	types := []string{"image/png", "image/jpeg", "image/gif", "image/svg+xml"}
	return err == nil && len(data) >= 4 && slices.Contains(types, text(o, "mediatype"))
}

// validators runs what operator-sdk runs with name=operatorhub and suite=operatorframework, which preflight runs, too.
func validators(s *submission) (out []string) {
	objects := append(s.bundle.ObjectsToValidate(), map[string]string{"k8s-version": "1.35"})
	all := validation.DefaultBundleValidators.WithValidators(
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.AlphaDeprecatedAPIsValidator, validation.GoodPracticesValidator,
	)
	for _, result := range all.Validate(objects...) {
		for _, problem := range slices.Concat(result.Errors, result.Warnings) {
			out = append(out, strings.TrimSpace(problem.Error()))
		}
	}
	return out
}

// kubernetesVersions compares the least versions. OpenShift 4.3 has Kubernetes 1.16, and each 4.N has 1.(N+13).
func kubernetesVersions(s *submission) []string {
	least, err := semver.Parse(text(s.csv, "spec", "minKubeVersion"))
	if err != nil {
		return []string{"spec.minKubeVersion is no version: " + err.Error()}
	}
	versions, _ := s.annotations["com.redhat.openshift.versions"].(string)
	match := regexp.MustCompile(`^v4\.(\d+)(-v4\.\d+)?$`).FindStringSubmatch(versions)
	if match == nil {
		return []string{fmt.Sprintf("com.redhat.openshift.versions is %q, must be a least version or a range", versions)}
	}
	first, err := strconv.ParseUint(match[1], 10, 16)
	if err != nil {
		return []string{err.Error()}
	}
	if least.Minor > first+13 {
		return []string{fmt.Sprintf("OpenShift 4.%d has Kubernetes 1.%d, minKubeVersion is %s", first, first+13, least)}
	}
	return nil
}

// dockerfile checks what the hub copies from the annotations to a Dockerfile, in single quotes.
func dockerfile(s *submission) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(s.annotations)) {
		if value, ok := s.annotations[key].(string); !ok || strings.ContainsAny(value, "'\n") {
			out = append(out, "the annotation "+key+" cannot be a label in single quotes")
		}
	}
	for key, want := range map[string]string{"manifests.v1": "manifests/", "metadata.v1": "metadata/"} {
		if got := s.annotations[annotationPrefix+key]; got != want {
			out = append(out, fmt.Sprintf("the annotation %s%s is %v, must be %s", annotationPrefix, key, got, want))
		}
	}
	slices.Sort(out)
	return out
}
