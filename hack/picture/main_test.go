// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The picture is what the engine of this version does.
func TestThePictureOfTheReadmeIsUpToDate(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "images", "usage.svg")
	var drawn bytes.Buffer
	if err := draw(&drawn); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, drawn.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, drawn.Bytes()) {
		t.Error("docs/images/usage.svg is not what this version draws: run make picture")
	}
}

// GitHub shows an image of the README as a document of its own: nothing may be loaded, and no
// script runs.
func TestThePictureStandsAlone(t *testing.T) {
	var drawn bytes.Buffer
	if err := draw(&drawn); err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(&drawn)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if element.Name.Local == "script" {
			t.Error("the picture has a script")
		}
		for _, a := range element.Attr {
			if a.Name.Local == "href" || strings.Contains(a.Value, "url(") {
				t.Errorf("<%s %s=%q> loads something", element.Name.Local, a.Name.Local, a.Value)
			}
		}
	}
}
