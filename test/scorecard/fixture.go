// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// StoredFile is the name of the file, in the folder of a version, with the objects that the
// version has stored: for each scaler the Deployment, the VerticalScaler and the
// VerticalScalerCheckpoint.
const StoredFile = "stored.yaml"

// RecordedNamespace is the namespace in the stored objects. A test replaces it by its own,
// wherever it is written.
const RecordedNamespace = "recorded-namespace"

//go:embed testdata
var testdata embed.FS

// stored contains the objects that a version has stored for one scaler.
type stored struct{ deployment, scaler, checkpoint *unstructured.Unstructured }

// storedVersions lists the versions with fixtures.
func storedVersions(files fs.FS) (versions []string, err error) {
	found, err := fs.Glob(files, path.Join("testdata", "v*", StoredFile))
	if err != nil {
		return nil, fmt.Errorf("looking for the objects that versions have stored: %w", err)
	}
	for _, file := range found {
		versions = append(versions, path.Base(path.Dir(file)))
	}
	if len(versions) == 0 {
		return nil, errors.New("there is no fixture of any version")
	}
	return versions, nil
}

// readStored reads the stored objects of a version, moved to another namespace.
func readStored(files fs.FS, version, namespace string) (all []stored, err error) {
	content, err := fs.ReadFile(files, path.Join("testdata", version, StoredFile))
	if err != nil {
		return nil, fmt.Errorf("reading the objects that %s has stored: %w", version, err)
	}
	content = bytes.ReplaceAll(content, []byte(RecordedNamespace), []byte(namespace))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	byName := map[string]*stored{}
	for {
		// Decode as JSON, so that integers stay integers.
		var document runtime.RawExtension
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			for _, name := range slices.Sorted(maps.Keys(byName)) {
				if s := byName[name]; s.deployment == nil || s.scaler == nil || s.checkpoint == nil {
					return nil, fmt.Errorf("the objects that %s has stored for %s are not complete", version, name)
				}
				all = append(all, *byName[name])
			}
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("decoding the objects that %s has stored: %w", version, err)
		case len(document.Raw) == 0:
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document.Raw); err != nil {
			return nil, fmt.Errorf("decoding the objects that %s has stored: %w", version, err)
		}
		name := object.GetName()
		if byName[name] == nil {
			byName[name] = &stored{}
		}
		switch object.GetKind() {
		case "Deployment":
			byName[name].deployment = object
		case scalerKind:
			byName[name].scaler = object
		case scalerKind + "Checkpoint":
			byName[name].checkpoint = object
		default:
			return nil, fmt.Errorf("%s has stored a %s, which the test does not read", version, object.GetKind())
		}
	}
}

// withUIDs replaces the recorded UIDs of an object: the API server assigns new ones to
// recreated objects.
func withUIDs(object *unstructured.Unstructured, uids map[string]string) (*unstructured.Unstructured, error) {
	content, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", said(object), err)
	}
	text := string(content)
	for before, now := range uids {
		text = strings.ReplaceAll(text, before, now)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON([]byte(text)); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", said(object), err)
	}
	return out, nil
}

// asNew returns the object without the fields that the API server sets. Managed fields
// stay, because the operator's ownership is part of the stored state.
func asNew(object *unstructured.Unstructured) *unstructured.Unstructured {
	out := object.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(out.Object, "status")
	return out
}

// pruned returns the fields that were written and not read back unchanged, without those
// that the API server has added.
func pruned(written, read any, at string) (fields []string) {
	switch written := written.(type) {
	case map[string]any:
		read, ok := read.(map[string]any)
		if !ok {
			return []string{at}
		}
		for _, key := range slices.Sorted(maps.Keys(written)) {
			fields = append(fields, pruned(written[key], read[key], at+"."+key)...)
		}
	case []any:
		read, ok := read.([]any)
		if !ok || len(read) != len(written) {
			return []string{at}
		}
		for i := range written {
			fields = append(fields, pruned(written[i], read[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		if fmt.Sprint(written) != fmt.Sprint(read) {
			return []string{fmt.Sprintf("%s (written %v, read %v)", at, written, read)}
		}
	}
	return fields
}
