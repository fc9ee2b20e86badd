// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// IsTerminal reports whether an input or output is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width is the number of columns of a terminal; 0 for anything else.
func Width(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// WriteData writes data as json, indented by two spaces, or as yaml with the same names of fields.
func WriteData(w io.Writer, format string, data any) error {
	if format == "yaml" {
		out, err := yaml.Marshal(data)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(data)
}

// WarnOnce returns a function that prints each warning once.
func WarnOnce(w io.Writer) func(what string, err error) {
	printed := map[string]bool{}
	return func(what string, err error) {
		if text := fmt.Sprintf("warning: %s: %v", what, err); !printed[text] {
			printed[text] = true
			fmt.Fprintln(w, text)
		}
	}
}

// WriteFile writes a file atomically: it writes a temporary file and renames it.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error is reported
		}
	}()
	err = errors.Join(write(file), file.Close())
	if err == nil {
		err = os.Chmod(file.Name(), 0o644) //nolint:gosec // a report is no secret
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

// Progress is one line on a terminal that each message overwrites. On anything else, there is none.
type Progress struct {
	to         io.Writer
	isTerminal bool
	length     int
}

// NewProgress returns a line on a terminal.
func NewProgress(to io.Writer) *Progress { return &Progress{to: to, isTerminal: IsTerminal(to)} }

// Report overwrites the line.
func (p *Progress) Report(text string) {
	if p.isTerminal {
		fmt.Fprintf(p.to, "\r%-*s", p.length, text)
		p.length = len(text)
	}
}

// Clear empties the line.
func (p *Progress) Clear() {
	if p.length > 0 {
		fmt.Fprintf(p.to, "\r%*s\r", p.length, "")
		p.length = 0
	}
}

// Warn prints a warning in place of the line.
func (p *Progress) Warn(text string) {
	p.Clear()
	fmt.Fprintln(p.to, "warning:", text)
}
