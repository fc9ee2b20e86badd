// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"strings"
	"time"
)

// A file is what an archive has of a file. Owners and other times are left out: they would
// tell about the machine.
type file struct {
	name    string
	mode    int64 // permissions
	content []byte
}

// pack returns an archive, in the format that its name says. All files have the same time.
func pack(name string, files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	write := writeTar
	if strings.HasSuffix(name, ".zip") {
		write = writeZip
	}
	if err := write(&out, files, at); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeTar(out io.Writer, files []file, at time.Time) error {
	packed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

func writeZip(out io.Writer, files []file, at time.Time) error {
	archive := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(fs.FileMode(f.mode)) //nolint:gosec // nine bits
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
