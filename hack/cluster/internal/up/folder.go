// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// folder is where one cluster lives.
type folder string

func (f folder) path(elements ...string) string {
	return filepath.Join(append([]string{string(f)}, elements...)...)
}

func (f folder) kubeconfig(user string) string { return f.path(user + ".kubeconfig") }
func (f folder) log(component string) string   { return f.path("logs", component+".log") }
func (f folder) audit() string                 { return f.path("audit.log") }
func (f folder) ready() string                 { return f.path("ready") }

// prepare creates the folder. One with other files may belong to another cluster.
func (f folder) prepare() error {
	files, err := os.ReadDir(string(f))
	if len(files) > 0 {
		return fmt.Errorf("folder %s must be new or empty", f)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(f.path("logs"), 0o755), os.MkdirAll(f.path("home"), 0o755))
}
