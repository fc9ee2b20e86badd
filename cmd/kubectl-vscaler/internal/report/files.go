// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

// tables are tables on disk: files, folders of them, or "-" for standard input.
type tables struct {
	paths []string
	stdin io.Reader
}

func (t tables) read(ctx context.Context) ([]backtest.Trace, error) {
	var reader backtest.Reader
	for _, path := range t.paths {
		if path == "-" {
			if err := reader.Read("standard input", t.stdin); err != nil {
				return nil, err
			}
			continue
		}
		files, err := tablesIn(path)
		if err != nil {
			return nil, err
		}
		for _, table := range files {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := readFile(&reader, table); err != nil {
				return nil, err
			}
		}
	}
	return reader.Traces()
}

// fromTables replays tables. A series stands for a Deployment with one pod.
func (r *Reporter) fromTables(ctx context.Context) (*fleet.Report, error) {
	r.Progress.Report("Reading usage")
	traces, err := r.tables.read(ctx)
	if err != nil {
		return nil, err
	}
	byContainer := map[fleet.Container]backtest.Trace{}
	from, until := int64(math.MaxInt64), int64(0)
	for _, trace := range traces {
		byContainer[seriesContainer(trace)] = trace
		last := trace.Samples[len(trace.Samples)-1].At + int64(trace.Step/time.Second)
		from, until = min(from, trace.Samples[0].At), max(until, last)
	}
	r.Progress.Report(fmt.Sprintf("Replaying %d containers", len(traces)))
	var done atomic.Int64
	rows := r.evaluate(slices.Collect(maps.Keys(byContainer)), func(c fleet.Container) (backtest.Trace, bool) { return byContainer[c], true }, &done)
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the series can be reported: %s (see --warm-up)", reasonsOf(r.skipped))
	}
	return fleet.New(rows, r.skipped, time.Unix(from, 0), time.Unix(until, 0), r.Options), nil
}

// seriesContainer is the container of a series: that of a name like those of --save, or one that has the name of the
// series, like its Deployment.
func seriesContainer(t backtest.Trace) fleet.Container {
	name := explain.Printable(t.Name)
	c := fleet.Container{Kind: prometheus.Deployment, Workload: name, Name: name, Replicas: 1, Requests: t.Requests, Limits: quantity.Amounts{MemoryBytes: t.Requests.MemoryBytes}}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 3:
		c.Namespace, c.Workload, c.Name = parts[0], parts[1], parts[2]
	case 4:
		c.Namespace, c.Kind, c.Workload, c.Name = parts[0], parts[1], parts[2], parts[3]
	}
	return c
}

// savePart saves the usage of a part as tables: two files for each container. Names in Kubernetes have no underscore, so the
// files of two containers never collide.
func (r *Reporter) savePart(p part) error {
	if r.Save == "" {
		return nil
	}
	if err := os.MkdirAll(r.Save, 0o755); err != nil { //nolint:gosec // usage is no secret
		return err
	}
	for _, c := range p.containers {
		usage, ok := p.usageOf(c)
		if !ok {
			continue
		}
		usage.Name, usage.Requests = c.ID(), c.Requests
		path := filepath.Join(r.Save, strings.ReplaceAll(usage.Name, "/", "_"))
		err := errors.Join(
			cli.WriteFile(path+".csv", func(w io.Writer) error { return backtest.WriteUsage(w, usage) }),
			cli.WriteFile(path+"_series.csv", func(w io.Writer) error { return backtest.WriteContainers(w, usage) }))
		if err != nil {
			return err
		}
	}
	return nil
}

// tablesIn is the file itself, or the tables of a folder, sorted.
func tablesIn(path string) ([]string, error) {
	about, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !about.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var tables []string
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() && (strings.HasSuffix(name, ".csv") || strings.HasSuffix(name, ".csv.gz")) {
			tables = append(tables, filepath.Join(path, name))
		}
	}
	if len(tables) == 0 {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("the folder has no .csv or .csv.gz files")}
	}
	slices.Sort(tables)
	return tables, nil
}

func readFile(reader *backtest.Reader, path string) error {
	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return reader.Read(path, file)
}

// component is the file that makes a folder of patches a Kustomize component.
const component = "kustomization.yaml"

// patchOptions are the flags for patches.
type patchOptions struct {
	format   fleet.PatchFormat
	folder   string
	helmPath string
}

func (o *patchOptions) bind(c *cobra.Command) {
	flags := c.Flags()
	cli.AddChoice(c, &o.format, "patches", "", fleet.PatchFormats(), "Write patches in this format")
	flags.StringVar(&o.folder, "patches-folder", "", "The folder to write patches to.")
	flags.StringVar(&o.helmPath, "helm-path", "", "Where Helm values have the resources of a container, such as {deployment}.resources. Defaults to resources, or to {container}.resources for several containers.")
}

func (o *patchOptions) validate() error {
	switch {
	case o.format == "" && o.folder != "":
		return errors.New("--patches-folder requires --patches")
	case o.format != "" && o.folder == "":
		return errors.New("--patches requires --patches-folder")
	case o.helmPath != "" && o.format != fleet.HelmValues:
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
	patches, err := report.Patches(o.format, o.helmPath)
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
	if o.format == fleet.Kustomize {
		if err := o.writeComponent(); err != nil {
			return err
		}
	}
	words := fmt.Sprintf("%d patches", len(patches))
	if len(patches) == 1 {
		words = "1 patch"
	}
	fmt.Fprintf(errOut, "Wrote %s to %s. Without one are %d of %d workloads: they request what is recommended, have no recommendation, or another object controls them.\n",
		words, o.folder, report.Workloads-len(patches), report.Workloads)
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
