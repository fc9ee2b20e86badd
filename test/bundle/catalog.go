// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Requirements of catalogs: operatorhub.io, OpenShift's community catalog, whose checks are
// stricter than the validators, and the web consoles that show the bundle.
var catalogRules = []Rule{
	{"what OpenShift's catalog requires", requiredFields},
	{"OpenShift and Kubernetes versions", openShiftVersions},
	{"feature annotations", featureAnnotations},
	{"names and versions", namesAndVersions},
	{"channels", channels},
	{"description", description},
	{"suggested namespace", suggestedNamespace},
	{"Dockerfile", dockerfileLabels},
}

const (
	packageName  = "verticalscaler-operator"
	openShiftKey = "com.redhat.openshift.versions"
	featurePath  = "features.operators.openshift.io/"
)

// requiredFields are the fields that OpenShift's catalog requires or warns about.
func requiredFields(b *Bundle) (out []string) {
	csv, annotations := b.CSV, b.CSV.Annotations
	for _, field := range []struct{ name, value, pattern string }{
		{"annotation categories", annotations["categories"], `.+`},
		{"annotation containerImage", annotations["containerImage"], `^([^/]+/)+[^/:]+:.+$`},
		{"annotation repository", annotations["repository"], `^https?://.+`},
		{"annotation support", annotations["support"], `(?s).{3,}`},
		{"annotation description", annotations["description"], `(?s)^.{10,135}$`},
		{"displayName", csv.Spec.DisplayName, `^.{3,50}$`},
		{"description", csv.Spec.Description, `(?s).{20,}`},
		{"provider.name", csv.Spec.Provider.Name, `.{3,}`},
		{"maturity", csv.Spec.Maturity, `.+`},
	} {
		if !regexp.MustCompile(field.pattern).MatchString(field.value) {
			out = append(out, fmt.Sprintf("%s is missing or wrong: %q", field.name, field.value))
		}
	}
	if _, err := time.Parse(time.RFC3339, annotations["createdAt"]); err != nil {
		out = append(out, "annotation createdAt is not a time: "+err.Error())
	}
	if len(csv.Spec.Keywords) == 0 || slices.Contains(csv.Spec.Keywords, "") {
		out = append(out, "keywords are missing or empty")
	}
	if len(csv.Spec.Maintainers) == 0 {
		out = append(out, "there is no maintainer")
	}
	for _, m := range csv.Spec.Maintainers {
		if _, err := mail.ParseAddress(m.Email); err != nil || m.Name == "" {
			out = append(out, fmt.Sprintf("maintainer %q <%s> has no name or no address", m.Name, m.Email))
		}
	}
	if len(csv.Spec.Links) == 0 {
		out = append(out, "there is no link")
	}
	for _, l := range csv.Spec.Links {
		if u, err := url.Parse(l.URL); err != nil || u.Scheme != "https" || u.Host == "" || l.Name == "" {
			out = append(out, fmt.Sprintf("link %q to %q is not a name and an address", l.Name, l.URL))
		}
	}
	return append(out, icon(csv.Spec.Icon)...)
}

// icon requires one square SVG image, which hubs and consoles can scale.
func icon(icons []v1alpha1.Icon) []string {
	if len(icons) != 1 {
		return []string{fmt.Sprintf("there are %d icons, want one", len(icons))}
	}
	if icons[0].MediaType != "image/svg+xml" {
		return []string{fmt.Sprintf("the icon is %q, want image/svg+xml", icons[0].MediaType)}
	}
	data, err := base64.StdEncoding.DecodeString(icons[0].Data)
	if err != nil {
		return []string{"the icon is not base64: " + err.Error()}
	}
	var svg struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Width   string   `xml:"width,attr"`
		Height  string   `xml:"height,attr"`
	}
	if err := xml.NewDecoder(bytes.NewReader(data)).Decode(&svg); err != nil {
		return []string{"the icon is not SVG: " + err.Error()}
	}
	if svg.Width != svg.Height {
		return []string{fmt.Sprintf("the icon is %s by %s, want a square", svg.Width, svg.Height)}
	}
	return nil
}

// kubernetesOf is the minimum version of Kubernetes, as <major>.<minor>.
func kubernetesOf(b *Bundle) string {
	v, err := semver.Parse(b.CSV.Spec.MinKubeVersion)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

// openShiftVersions compares the minimum versions of Kubernetes and of OpenShift in the
// bundle. OpenShift 4.3 has Kubernetes 1.16, and each 4.N has 1.(N+13).
func openShiftVersions(b *Bundle) []string {
	least, err := semver.Parse(b.CSV.Spec.MinKubeVersion)
	if err != nil {
		return []string{fmt.Sprintf("minKubeVersion %q is not a full version: %v", b.CSV.Spec.MinKubeVersion, err)}
	}
	versions, ok := b.Annotations[openShiftKey]
	if !ok {
		return []string{"minKubeVersion asks for the annotation " + openShiftKey}
	}
	match := regexp.MustCompile(`^v4\.([0-9]+)(-v4\.[0-9]+)?$`).FindStringSubmatch(versions)
	if match == nil {
		return []string{fmt.Sprintf("%s is %q, want a least version or a range", openShiftKey, versions)}
	}
	first, err := strconv.ParseUint(match[1], 10, 16)
	if err != nil {
		return []string{err.Error()}
	}
	if least.Major != 1 || first+13 != least.Minor {
		return []string{fmt.Sprintf("OpenShift from 4.%d has Kubernetes 1.%d, but minKubeVersion is %s", first, first+13, least)}
	}
	return nil
}

// featureAnnotations requires an answer for each feature that OpenShift asks for, and
// verifies the answers that depend only on the bundle.
func featureAnnotations(b *Bundle) (out []string) {
	known := []string{
		"disconnected", "fips-compliant", "proxy-aware", "tls-profiles", "token-auth-aws", "token-auth-azure", "token-auth-gcp",
		"cnf", "cni", "csi",
	}
	for _, name := range known[:7] {
		if v := b.CSV.Annotations[featurePath+name]; v != "true" && v != "false" {
			out = append(out, fmt.Sprintf("%s%s is %q, want true or false", featurePath, name, v))
		}
	}
	for key, v := range b.CSV.Annotations {
		name, ok := strings.CutPrefix(key, featurePath)
		if ok && (!slices.Contains(known, name) || v != "true" && v != "false") {
			out = append(out, fmt.Sprintf("%s: %q is not an answer that OpenShift knows", key, v))
		}
	}
	pinned := true
	for _, image := range b.CSV.Spec.RelatedImages {
		if strings.Contains(image.Image, "@sha256:") {
			continue
		}
		pinned = false
		if b.CSV.Annotations[featurePath+"disconnected"] == "true" {
			out = append(out, fmt.Sprintf("disconnected needs digests, but there is image %s", image.Image))
		}
	}
	// A cluster without a connection mirrors images by their digests.
	if pinned && b.CSV.Annotations[featurePath+"disconnected"] == "false" {
		out = append(out, "all images have digests, but disconnected is false")
	}
	slices.Sort(out)
	return out
}

// namesAndVersions requires that the package, the version and the derived names agree.
func namesAndVersions(b *Bundle) (out []string) {
	version := b.CSV.Spec.Version.String()
	if b.Package != packageName {
		out = append(out, fmt.Sprintf("the package is %q, want %q", b.Package, packageName))
	}
	if want := packageName + ".v" + version; b.CSV.Name != want {
		out = append(out, fmt.Sprintf("the name is %q, want %q", b.CSV.Name, want))
	}
	if image := b.CSV.Annotations["containerImage"]; !strings.HasSuffix(image, ":v"+version) && !strings.Contains(image, "@sha256:") {
		out = append(out, fmt.Sprintf("containerImage %q is not of version %s", image, version))
	}
	if got, want := b.CSV.Annotations["olm.skipRange"], "<"+version; got != want {
		out = append(out, fmt.Sprintf("olm.skipRange is %q, want %q", got, want))
	}
	if b.CSV.Spec.Cleanup.Enabled {
		out = append(out, "cleanup is enabled: scalers would be deleted with the operator")
	}
	return out
}

func channels(b *Bundle) (out []string) {
	if want := []string{"candidate", "fast", "stable"}; !slices.Equal(b.Channels, want) {
		out = append(out, fmt.Sprintf("the channels are %v, want %v", b.Channels, want))
	}
	if b.DefaultChannel != "stable" {
		out = append(out, fmt.Sprintf("the default channel is %q, want stable", b.DefaultChannel))
	}
	return out
}

// description requires the order that hubs recommend: what is managed, what the operator
// can do, what it needs. The first section describes the operand: without one, the operator
// counts as a basic install.
func description(b *Bundle) (out []string) {
	at := 0
	for _, heading := range []string{"## What it manages", "## Features", "## Prerequisites"} {
		i := strings.Index(b.CSV.Spec.Description[at:], "\n"+heading+"\n")
		if i < 0 {
			return append(out, fmt.Sprintf("there is no %q, or not in its place", heading))
		}
		at += i
	}
	return out
}

// suggestedNamespace requires that the namespace that consoles create has the same pod
// security level as ours.
func suggestedNamespace(b *Bundle) (out []string) {
	const key = "operatorframework.io/suggested-namespace"
	name := b.CSV.Annotations[key]
	if name != "verticalscaler-system" {
		out = append(out, fmt.Sprintf("%s is %q", key, name))
	}
	var template corev1.Namespace
	if err := yaml.UnmarshalStrict([]byte(b.CSV.Annotations[key+"-template"]), &template); err != nil {
		return append(out, fmt.Sprintf("%s-template is not a namespace: %v", key, err))
	}
	if template.Name != name {
		out = append(out, fmt.Sprintf("%s-template is of namespace %q", key, template.Name))
	}
	if got := template.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		out = append(out, fmt.Sprintf("%s-template enforces %q, want restricted", key, got))
	}
	return out
}

// dockerfileLabels requires that the image's labels match the annotations, because OLM may
// read either, and that the image contains the whole bundle.
func dockerfileLabels(b *Bundle) (out []string) {
	labels := map[string]string{}
	var copied []string
	for line := range strings.SplitSeq(b.Dockerfile, "\n") {
		if label, ok := strings.CutPrefix(line, "LABEL "); ok {
			key, value, _ := strings.Cut(label, "=")
			labels[key] = value
		}
		if from, ok := strings.CutPrefix(line, "COPY "); ok {
			copied = append(copied, from)
		}
	}
	for key, value := range b.Annotations {
		if labels[key] != value {
			out = append(out, fmt.Sprintf("label %s is %q, the annotation %q", key, labels[key], value))
		}
	}
	for key, value := range labels {
		if _, ok := b.Annotations[key]; !ok {
			out = append(out, fmt.Sprintf("label %s=%s is no annotation", key, value))
		}
	}
	for _, path := range []string{"manifests", "metadata", "tests/scorecard"} {
		if !slices.ContainsFunc(copied, func(line string) bool { return strings.HasSuffix(line, "/"+path+" /"+path+"/") }) {
			out = append(out, fmt.Sprintf("%s is not copied", path))
		}
	}
	slices.Sort(out)
	return out
}

// properties are the dependencies and other constraints of metadata/ and of the
// annotation olm.properties, as OLM merges them.
func properties(b *Bundle) (types []string, err error) {
	var list []struct {
		Type string `json:"type"`
	}
	if text, ok := b.CSV.Annotations["olm.properties"]; ok {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("reading olm.properties: %w", err)
		}
	}
	for _, p := range list {
		types = append(types, p.Type)
	}
	return types, nil
}
