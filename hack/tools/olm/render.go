// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	ocv1 "github.com/operator-framework/operator-controller/api/v1"
	"github.com/operator-framework/operator-controller/internal/operator-controller/applier"
	"github.com/operator-framework/operator-controller/internal/operator-controller/rukpak/render/registryv1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// manifests makes objects of a bundle as operator-controller does with its default feature gates. With namespaced, it also
// allows a watched namespace, which is an alpha feature.
func manifests(namespaced bool) *applier.RegistryV1ManifestProvider {
	return &applier.RegistryV1ManifestProvider{BundleRenderer: registryv1.Renderer, IsSingleOwnNamespaceEnabled: namespaced}
}

// rendered are the objects that OLM v1 makes of a bundle for a ClusterExtension.
func rendered(bundle fs.FS, extension *ocv1.ClusterExtension) ([]unstructured.Unstructured, error) {
	objects, err := manifests(extension.Spec.Config != nil).Get(bundle, extension)
	if err != nil {
		return nil, fmt.Errorf("rendering the bundle: %w", err)
	}
	var out []unstructured.Unstructured
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("converting %T %s: %w", object, object.GetName(), err)
		}
		out = append(out, unstructured.Unstructured{Object: content})
	}
	return out, nil
}

func printObjects(flags *flag.FlagSet, args []string, out io.Writer) error {
	bundle, extension, err := inputs(flags, args)
	if err != nil {
		return err
	}
	objects, err := rendered(bundle, extension)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := document(out, object.Object); err != nil {
			return err
		}
	}
	return nil
}

// inputs reads the flags that name a bundle and a ClusterExtension.
func inputs(flags *flag.FlagSet, args []string) (fs.FS, *ocv1.ClusterExtension, error) {
	bundle := flags.String("bundle", "bundle", "the folder of the bundle")
	file := flags.String("extension", "", "the file with the ClusterExtension: YAML, or Markdown with YAML in it")
	if err := flags.Parse(args); err != nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(*file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ClusterExtension: %w", err)
	}
	if strings.HasSuffix(*file, ".md") {
		if content, err = inMarkdown(content); err != nil {
			return nil, nil, fmt.Errorf("reading %s: %w", *file, err)
		}
	}
	var extension ocv1.ClusterExtension
	if err := yaml.UnmarshalStrict(content, &extension); err != nil {
		return nil, nil, fmt.Errorf("decoding the ClusterExtension: %w", err)
	}
	return os.DirFS(*bundle), &extension, nil
}

var fence = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// inMarkdown is the ClusterExtension in a page.
func inMarkdown(page []byte) ([]byte, error) {
	for _, block := range fence.FindAllSubmatch(page, -1) {
		if bytes.Contains(block[1], []byte("\nkind: ClusterExtension\n")) {
			return block[1], nil
		}
	}
	return nil, errors.New("it has no ClusterExtension")
}

// document writes a YAML document.
func document(out io.Writer, object any) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding YAML: %w", err)
	}
	_, err = fmt.Fprintf(out, "---\n%s", content)
	return err
}
