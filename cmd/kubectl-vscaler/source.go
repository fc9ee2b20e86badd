// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// source provides recorded usage. The given requests stand in for containers whose current
// requests the source does not know.
type source interface {
	Traces(ctx context.Context, requests quantity.Amounts) ([]backtest.Trace, error)
}

// files are tables on disk: files, folders of them, or "-" for standard input.
type files struct {
	paths []string
	stdin io.Reader
}

func (f files) Traces(ctx context.Context, requests quantity.Amounts) ([]backtest.Trace, error) {
	var reader backtest.Reader
	for _, path := range f.paths {
		if path == "-" {
			if err := reader.Read("standard input", f.stdin); err != nil {
				return nil, err
			}
			continue
		}
		tables, err := tablesIn(path)
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := readFile(&reader, table); err != nil {
				return nil, err
			}
		}
	}
	traces, err := reader.Traces(requests)
	if errors.Is(err, backtest.ErrNoRequests) {
		return nil, fmt.Errorf("%w: set --cpu-request and --memory-request, or add a table with the header series,init_cpu,init_mem", err)
	}
	return traces, err
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
