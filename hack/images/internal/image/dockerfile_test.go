// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"
)

const sampleDockerfile = `FROM golang AS build
RUN go build -o /out/tool
FROM scratch
ARG TARGETARCH
ARG VERSION=unknown
LABEL title="A tool" \
      version=$VERSION
COPY --chmod=0644 LICENSE /licenses/LICENSE
COPY --from=build /out/$TARGETARCH/tool /out/config /bin/
COPY root /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/bin/tool"]
CMD ["serve", "-v"]
`

func TestDockerfile(t *testing.T) {
	context, build := t.TempDir(), t.TempDir()
	put(t, context, "LICENSE", "licence")
	put(t, build, "out/arm64/tool", "tool")
	put(t, build, "out/config", "config")
	if err := errors.Join(
		os.Chmod(filepath.Join(build, "out/arm64/tool"), 0o755),
		os.MkdirAll(filepath.Join(context, "root/tmp"), 0o755),
		os.Chmod(filepath.Join(context, "root/tmp"), 0o777|os.ModeSticky),
		os.Symlink("tool", filepath.Join(context, "root/sh")),
	); err != nil {
		t.Fatal(err)
	}
	recipe, err := Dockerfile{
		Text: strings.NewReader(sampleDockerfile), Context: context, Stages: map[string]string{"build": build},
		Args: map[string]string{"VERSION": "v1"}, Labels: map[string]string{"revision": "abc"},
		Architecture: "arm64", Created: time.Unix(1000, 0),
	}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	image, err := recipe.Build()
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		User: "65532:65532", Env: []string{defaultPath}, Entrypoint: []string{"/bin/tool"}, Cmd: []string{"serve", "-v"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Labels:       map[string]string{"title": "A tool", "version": "v1", "revision": "abc"},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got := config.OS + "/" + config.Architecture + " " + config.Created.UTC().Format(time.TimeOnly); got != "linux/arm64 00:16:40" {
		t.Errorf("the image is for and from %s", got)
	}
	var got []string
	for _, f := range files(t, image) {
		got = append(got, fmt.Sprintf("%o %s%s %q", f.Mode, f.Name, f.Linkname, f.content))
		if f.ModTime.Unix() != 1000 || f.Uid != 0 || f.Gid != 0 {
			t.Errorf("%s is from %v, of %d:%d", f.Name, f.ModTime, f.Uid, f.Gid)
		}
	}
	wantFiles := []string{
		`777 shtool ""`, `1777 tmp ""`, `755 bin ""`, `600 bin/config "config"`, `755 bin/tool "tool"`,
		`755 licenses ""`, `644 licenses/LICENSE "licence"`,
	}
	if diff := cmp.Diff(wantFiles, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestDockerfileRefuses(t *testing.T) {
	folder := t.TempDir()
	put(t, folder, "dynamic", string(program(t, elf.PT_LOAD, elf.PT_INTERP)))
	cases := map[string]struct{ text, want string }{
		"a base image":                 {"FROM debian", "must be FROM scratch"},
		"a command to run":             {"FROM scratch\nRUN make", "RUN make"},
		"a command for a shell":        {"FROM scratch\nENTRYPOINT /tool serve", "no shell"},
		"a stage that is not there":    {"FROM a AS build\nFROM scratch\nCOPY --from=build /a /a", "-stage build="},
		"a file that is not there":     {"FROM scratch\nCOPY nothing /", "no such file"},
		"a program that is not static": {"FROM scratch\nCOPY dynamic /", "not statically linked"},
		"an unknown instruction":       {"FROM scratch\nCOPPY a b", "COPPY"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recipe, err := Dockerfile{Text: strings.NewReader(tc.text), Context: folder}.Recipe()
			if err == nil {
				_, err = recipe.Build()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// The bundle's image must have the bundle's annotations as labels, and the files that the labels name.
func TestTheBundlesImage(t *testing.T) {
	const repository = "../../../.."
	text, err := os.Open(repository + "/bundle.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	recipe, err := Dockerfile{Text: text, Context: repository, Architecture: "amd64"}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	image, err := recipe.Build()
	if err != nil {
		t.Fatal(err)
	}
	annotations, err := os.ReadFile(repository + "/bundle/metadata/annotations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(annotations, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Annotations, recipe.Config.Labels); diff != "" {
		t.Errorf("labels (-annotations +image):\n%s", diff)
	}
	found := map[string]bool{}
	for _, f := range files(t, image) {
		found[f.Name] = true
	}
	for _, name := range []string{
		"manifests/verticalscaler-operator.clusterserviceversion.yaml", "metadata/annotations.yaml", "tests/scorecard/config.yaml",
	} {
		if !found[name] {
			t.Errorf("the image has no %s, but %v", name, found)
		}
	}
}

// What openshift-preflight requires of a certified image: HasRequiredLabel and HasNoProhibitedLabels in internal/policy/container.
func TestTheOperatorsImageHasTheLabelsForCertification(t *testing.T) {
	const repository = "../../../.."
	text, err := os.ReadFile(repository + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	build := t.TempDir()
	put(t, build, "out/amd64/manager", "program")
	labels := func(text string) map[string]string {
		recipe, err := Dockerfile{
			Text: strings.NewReader(text), Context: repository, Stages: map[string]string{"build": build},
			Args: map[string]string{"VERSION": "v1.2.3"}, Architecture: "amd64",
		}.Recipe()
		if err != nil {
			t.Fatal(err)
		}
		return recipe.Config.Labels
	}
	names := []string{"name", "vendor", "version", "release", "summary", "description", "maintainer"}
	got := labels(string(text))
	for _, name := range names {
		if got[name] == "" {
			t.Errorf("the label %s is missing", name)
		}
		// Docker and our own builder read the same line.
		line := regexp.MustCompile(`(?m)^(LABEL| {5}) ` + name + `=.*\n`)
		if found := line.FindAllString(string(text), -1); len(found) != 1 {
			t.Errorf("the Dockerfile sets the label %s %d times", name, len(found))
		}
	}
	if got["version"] != "v1.2.3" || got["vendor"] != got["org.opencontainers.image.vendor"] {
		t.Errorf("the labels are of version %q and vendor %q", got["version"], got["vendor"])
	}
	for _, name := range []string{"name", "vendor", "maintainer"} {
		if regexp.MustCompile(`(?i)red[^a-z0-9]*hat`).MatchString(got[name]) {
			t.Errorf("the label %s names Red Hat's trademark: %q", name, got[name])
		}
	}
}

func TestStaticProgramsAreAccepted(t *testing.T) {
	if isDynamic(program(t, elf.PT_LOAD, elf.PT_GNU_STACK)) {
		t.Error("a program without a loader is taken for a dynamic one")
	}
}

// program is the beginning of a program with these segments, which are empty.
func program(t *testing.T, segments ...elf.ProgType) []byte {
	t.Helper()
	const headerSize, segmentSize = 64, 56
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: segmentSize, Phnum: uint16(len(segments)),
	}
	copy(h.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		if err := binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(s)}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

type file struct {
	*tar.Header

	content string
}

// files returns the files that a container would see.
func files(t *testing.T, image v1.Image) (all []file) {
	t.Helper()
	stream := mutate.Extract(image)
	defer func() { _ = stream.Close() }()
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file{header, string(content)})
	}
}

func put(t *testing.T, folder, name, content string) {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}
