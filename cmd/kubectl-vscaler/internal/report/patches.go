// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
)

// component is the file that makes a folder of patches a Kustomize component.
const component = "kustomization.yaml"

// patchOptions are the flags for patches.
type patchOptions struct {
	format   string
	folder   string
	helmPath string
}

func (o *patchOptions) bind(c *cobra.Command) {
	flags := c.Flags()
	var formats []string
	for _, format := range fleet.PatchFormats() {
		formats = append(formats, string(format))
	}
	cli.AddChoice(c, &o.format, "patches", "", formats, "Write patches in this format")
	flags.StringVar(&o.folder, "patches-folder", "", "The folder to write patches to.")
	flags.StringVar(&o.helmPath, "helm-path", "", "Where Helm values have the resources of a container, such as {deployment}.resources. Defaults to resources, or to {container}.resources for several containers.")
}

func (o *patchOptions) validate() error {
	switch {
	case o.format == "" && o.folder != "":
		return errors.New("--patches-folder requires --patches")
	case o.format != "" && o.folder == "":
		return errors.New("--patches requires --patches-folder")
	case o.helmPath != "" && o.format != string(fleet.HelmValues):
		return errors.New("--helm-path requires --patches=helm-values")
	case o.helmPath != "" && slices.Contains(strings.Split(o.helmPath, "."), ""):
		return fmt.Errorf("--helm-path %q has an empty key", o.helmPath)
	}
	return nil
}

// write writes the patches, and says how many there are.
func (o *patchOptions) write(report *fleet.Report, errOut io.Writer) error {
	if o.format == "" {
		return nil
	}
	patches, err := report.Patches(fleet.PatchFormat(o.format), o.helmPath)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.folder, 0o755); err != nil { //nolint:gosec // requests are no secret
		return fmt.Errorf("writing patches: %w", err)
	}
	for _, patch := range patches {
		if err := o.writeFile(patch.File, patch.Text); err != nil {
			return err
		}
	}
	if o.format == string(fleet.Kustomize) {
		if err := o.writeComponent(); err != nil {
			return err
		}
	}
	words := fmt.Sprintf("%d patches", len(patches))
	if len(patches) == 1 {
		words = "1 patch"
	}
	fmt.Fprintf(errOut, "Wrote %s to %s. Without one are %d of %d Deployments: they request what is recommended, or another object controls them.\n",
		words, o.folder, report.Deployments-len(patches), report.Deployments)
	return nil
}

// writeComponent names all patches in the folder, also those of reports before.
func (o *patchOptions) writeComponent() error {
	entries, err := os.ReadDir(o.folder)
	if err != nil {
		return fmt.Errorf("writing patches: %w", err)
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if name != component && strings.Contains(name, "_") && strings.HasSuffix(name, ".yaml") && isOurs(filepath.Join(o.folder, name)) {
			files = append(files, name)
		}
	}
	text, err := fleet.Component(files)
	if err != nil {
		return err
	}
	return o.writeFile(component, text)
}

// writeFile replaces a file only if this program has written it.
func (o *patchOptions) writeFile(name string, text []byte) error {
	path := filepath.Join(o.folder, name)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) && !isOurs(path) {
		return fmt.Errorf("writing patches: %s exists and was not written by this command", path)
	}
	err := cli.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing patches: %w", err)
	}
	return nil
}

// isOurs reports whether a file was written by this program.
func isOurs(path string) bool {
	text, err := os.ReadFile(path) //nolint:gosec // in the folder that the user names
	return err == nil && bytes.HasPrefix(text, []byte(fleet.PatchHeader))
}
