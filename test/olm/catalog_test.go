// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	packageName = "verticalscaler-operator"
	channel     = "stable"
	csvFile     = "manifests/verticalscaler-operator.clusterserviceversion.yaml"
	scalersFile = "manifests/autoscaling.verticalscaler.io_verticalscalers.yaml"
)

// bundle is a folder with one version of the operator, as OLM installs it.
type bundle struct {
	dir     string
	version string
	// csv is the name of its ClusterServiceVersion.
	csv string
}

// released copies the bundle of the source tree. It shortens the times in the operator's
// configuration: usage counts after seconds, so that the tests see results.
func released(t *testing.T) bundle {
	t.Helper()
	b := bundle{dir: filepath.Join(t.TempDir(), "released")}
	if err := os.CopyFS(b.dir, os.DirFS(paths[bundleVariable])); err != nil {
		t.Fatalf("copying the bundle: %v", err)
	}
	b.read(t)
	b.edit(t, "manifests/verticalscaler-config_v1_configmap.yaml", func(configMap map[string]any) {
		data, _, _ := unstructured.NestedStringMap(configMap, "data")
		content, err := edited(data["config.yaml"], func(c map[string]any) {
			set(c, "5s", "collection", "interval")
			set(c, "10s", "recommendation", "minEvidence")
			set(c, "20s", "recommendation", "fullEvidence")
			set(c, "5s", "recommendation", "confidenceUnit")
			set(c, "5s", "recommendation", "cpuHalfLife")
			set(c, "5s", "recommendation", "recentHalfLife")
			set(c, "40s", "recommendation", "memoryWindow")
		})
		must.Succeed(t, err)
		set(configMap, content, "data", "config.yaml")
	})
	return b
}

// next creates the version after b, with another name, version and image, and one more
// optional field in the scaler's status.
func (b bundle) next(t *testing.T) bundle {
	t.Helper()
	var major, minor, patch int
	if _, err := fmt.Sscanf(b.version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatalf("version %q of the bundle: %v", b.version, err)
	}
	n := bundle{dir: filepath.Join(t.TempDir(), "next")}
	if err := os.CopyFS(n.dir, os.DirFS(b.dir)); err != nil {
		t.Fatalf("copying the bundle: %v", err)
	}
	path := filepath.Join(n.dir, csvFile)
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	version := fmt.Sprintf("%d.%d.%d", major, minor, patch+1)
	content = []byte(strings.ReplaceAll(string(content), b.version, version))
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	n.edit(t, scalersFile, func(crd map[string]any) {
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		if err != nil || len(versions) != 1 {
			t.Fatalf("the CRD of scalers has %d versions: %v", len(versions), err)
		}
		first, ok := versions[0].(map[string]any)
		if !ok {
			t.Fatalf("a version of the CRD is a %T", versions[0])
		}
		set(first, map[string]any{"type": "string"}, "schema", "openAPIV3Schema", "properties", "status", "properties", nextField)
		set(crd, []any{first}, "spec", "versions")
	})
	n.read(t)
	return n
}

// nextField is the field that the next version adds to the scaler's status.
const nextField = "addedInNext"

// read reads name and version.
func (b *bundle) read(t *testing.T) {
	t.Helper()
	csv := b.object(t, csvFile)
	b.csv = csv.GetName()
	b.version, _, _ = unstructured.NestedString(csv.Object, "spec", "version")
	if b.csv != packageName+".v"+b.version {
		t.Fatalf("the ClusterServiceVersion is called %q and has version %q", b.csv, b.version)
	}
}

// object reads a file of the bundle.
func (b bundle) object(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.dir, file))
	must.Succeed(t, err)
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &out.Object); err != nil {
		t.Fatalf("decoding %s: %v", file, err)
	}
	return out
}

// edit changes a file of the bundle.
func (b bundle) edit(t *testing.T, file string, change func(map[string]any)) {
	t.Helper()
	path := filepath.Join(b.dir, file)
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	changed, err := edited(string(content), change)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	must.Succeed(t, os.WriteFile(path, []byte(changed), 0o600))
}

// catalog serves bundles to OLM.
type catalog struct {
	name    string // of the CatalogSource
	address string
	server  *process.Process
	served  int
}

// serve starts a catalog with the bundles, which replaces the previous one. It has a new
// name and address, because OLM caches the content of a catalog for a while.
func (c *catalog) serve(t *testing.T, bundles ...bundle) {
	t.Helper()
	dir := c.write(t, bundles)
	if c.name != "" {
		old := object("operators.coreos.com/v1alpha1", "CatalogSource", olmNamespace, c.name)
		must.Succeed(t, env.Client.Delete(t.Context(), old))
	}
	c.name = filepath.Base(dir)
	var err error
	if c.address, err = process.FreeAddress(); err != nil {
		t.Fatal(err)
	}
	c.restart(t, dir)
	source := object("operators.coreos.com/v1alpha1", "CatalogSource", olmNamespace, c.name)
	source.Object["spec"] = map[string]any{"sourceType": "grpc", "address": c.address, "displayName": c.name}
	env.Create(t, source)
}

// update publishes a new edition of the catalog, as a registry does for a tag.
func (c *catalog) update(t *testing.T, bundles ...bundle) {
	t.Helper()
	c.restart(t, c.write(t, bundles))
}

// write writes a catalog in which each bundle replaces the previous one. The catalog
// contains the bundles themselves, so that OLM does not unpack images.
func (c *catalog) write(t *testing.T, bundles []bundle) (dir string) {
	t.Helper()
	c.served++
	dir = filepath.Join(work, fmt.Sprintf("catalog-%d", c.served))
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	index := fmt.Sprintf("---\nschema: olm.package\nname: %s\ndefaultChannel: %s\n---\nschema: olm.channel\npackage: %s\nname: %s\nentries:\n",
		packageName, channel, packageName, channel)
	for i, b := range bundles {
		rendered, err := exec.CommandContext(t.Context(), paths[opmVariable], "render", b.dir, "-o", "yaml").Output()
		if err != nil {
			t.Fatalf("opm render: %v\n%s", err, stderr(err))
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, b.version+".yaml"), rendered, 0o600))
		index += "- name: " + b.csv + "\n"
		if i > 0 {
			index += "  replaces: " + bundles[i-1].csv + "\n"
		}
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "index.yaml"), []byte(index), 0o600))
	if out, err := exec.CommandContext(t.Context(), paths[opmVariable], "validate", dir).CombinedOutput(); err != nil {
		t.Fatalf("opm validate: %v\n%s", err, out)
	}
	return dir
}

func (c *catalog) restart(t *testing.T, dir string) {
	t.Helper()
	c.stop()
	cmd := exec.Command(paths[opmVariable], "serve", dir, "--port", c.address[strings.LastIndex(c.address, ":")+1:],
		"--cache-dir", dir+"-cache", "--cache-enforce-integrity=false", "--pprof-addr", "", "--termination-log", "")
	cmd.Dir = work
	var err error
	if c.server, err = start("opm", cmd); err != nil {
		t.Fatal(err)
	}
}

func (c *catalog) stop() {
	c.server.Stop(stopTimeout)
	c.server = nil
}

func stderr(err error) string {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as Output returns it
		return string(exit.Stderr)
	}
	return ""
}

// object is an object of a kind without a Go type here.
func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// namespaced creates a namespace and waits until pods can be created in it.
func namespaced(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	env.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	eventually(t, func() string {
		return testkit.MessageOf(env.Client.Get(t.Context(), key(name, "default"), &corev1.ServiceAccount{}))
	})
}
