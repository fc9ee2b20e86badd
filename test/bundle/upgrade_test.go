// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestCRDsCanBeUpgraded(t *testing.T) {
	released := yamlFiles(t, filepath.Join("testdata", "released"))
	for _, path := range released {
		t.Run(filepath.Base(path), func(t *testing.T) {
			problems, err := UpgradeProblems(readCRD(t, path), readCRD(t, inTree("config", "crd", "bases", filepath.Base(path))))
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
	if len(released) != 3 {
		t.Errorf("there are %d released CRDs, want those of scalers, checkpoints and ScaledDeployments", len(released))
	}
}

// The comparison must find changes that break users, and accept all others.
func TestChangesThatCRDUpgradesMayMake(t *testing.T) {
	cases := map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   string // a part of the complaint; empty if there is none
	}{
		"nothing": {change: func(*apiextensionsv1.CustomResourceDefinition) {}},
		"a description": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			specField(crd, "deploymentName", func(p *apiextensionsv1.JSONSchemaProps) { p.Description = "the name" })
		}},
		"a new optional field": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec(crd, func(p *apiextensionsv1.JSONSchemaProps) {
				p.Properties["new"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
			})
		}},
		"a new value of an enum": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			updatePolicy(crd, "updateMode", func(p *apiextensionsv1.JSONSchemaProps) {
				p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(`"New"`)})
			})
		}},
		"a changed default": {want: "default", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			updatePolicy(crd, "cooldownSeconds", func(p *apiextensionsv1.JSONSchemaProps) {
				p.Default = &apiextensionsv1.JSON{Raw: []byte(`600`)}
			})
		}},
		"a new default": {want: "default", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			specField(crd, "suspend", func(p *apiextensionsv1.JSONSchemaProps) {
				p.Default = &apiextensionsv1.JSON{Raw: []byte(`false`)}
			})
		}},
		"a new required field": {want: "required", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec(crd, func(p *apiextensionsv1.JSONSchemaProps) { p.Required = append(p.Required, "updatePolicy") })
		}},
		"a value of an enum is gone": {want: "enum", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			updatePolicy(crd, "updateMode", func(p *apiextensionsv1.JSONSchemaProps) { p.Enum = p.Enum[1:] })
		}},
		"another type": {want: "type", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			specField(crd, "suspend", func(p *apiextensionsv1.JSONSchemaProps) { p.Type = "string" })
		}},
		"a field is gone": {want: "existingFieldRemoval", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec(crd, func(p *apiextensionsv1.JSONSchemaProps) { delete(p.Properties, "suspend") })
		}},
		"a raised minimum": {want: "minimum", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			updatePolicy(crd, "cooldownSeconds", func(p *apiextensionsv1.JSONSchemaProps) { *p.Minimum = 1 })
		}},
		"a lowered maximum": {want: "maximum", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			updatePolicy(crd, "cooldownSeconds", func(p *apiextensionsv1.JSONSchemaProps) { *p.Maximum = 3600 })
		}},
		"a shorter string": {want: "maxLength", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			specField(crd, "deploymentName", func(p *apiextensionsv1.JSONSchemaProps) { *p.MaxLength = 63 })
		}},
		"another rule of CEL": {want: "unhandled", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			specField(crd, "deploymentName", func(p *apiextensionsv1.JSONSchemaProps) { p.XValidations[0].Rule = "self != 'web'" })
		}},
		"another scope": {want: "scope", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Scope = apiextensionsv1.ClusterScoped
		}},
		"the stored version is gone": {want: "storedVersionRemoval", change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Name = "v1"
		}},
	}
	path := filepath.Join("testdata", "released", "autoscaling.verticalscaler.io_verticalscalers.yaml")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from, to := readCRD(t, path), readCRD(t, path)
			// The API server records the stored versions.
			from.Status.StoredVersions = []string{from.Spec.Versions[0].Name}
			tc.change(to)
			problems, err := UpgradeProblems(from, to)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" && len(problems) > 0 || tc.want != "" && !contains(problems, tc.want) {
				t.Errorf("want %q, got %s", tc.want, listed(problems))
			}
		})
	}
}

func readCRD(t testing.TB, path string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return crd
}

// spec changes the schema of the spec.
func spec(crd *apiextensionsv1.CustomResourceDefinition, change func(*apiextensionsv1.JSONSchemaProps)) {
	changeProperty(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "spec", change)
}

// specField changes the schema of a field of the spec.
func specField(crd *apiextensionsv1.CustomResourceDefinition, name string, change func(*apiextensionsv1.JSONSchemaProps)) {
	spec(crd, func(p *apiextensionsv1.JSONSchemaProps) { changeProperty(p, name, change) })
}

// updatePolicy changes the schema of a field of spec.updatePolicy.
func updatePolicy(crd *apiextensionsv1.CustomResourceDefinition, name string, change func(*apiextensionsv1.JSONSchemaProps)) {
	specField(crd, "updatePolicy", func(p *apiextensionsv1.JSONSchemaProps) { changeProperty(p, name, change) })
}

// changeProperty changes a property, which must exist.
func changeProperty(of *apiextensionsv1.JSONSchemaProps, name string, change func(*apiextensionsv1.JSONSchemaProps)) {
	p, ok := of.Properties[name]
	if !ok {
		panic("there is no property " + name)
	}
	change(&p)
	of.Properties[name] = p
}
