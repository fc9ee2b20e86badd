// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package remote writes past samples of many series to a Prometheus, by the protocol remote write 1.0. promtool
// would read its input once for each two hours of it.
package remote

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Series is a series of samples, one a minute.
type Series struct {
	// Labels are pairs of names and values.
	Labels map[string]string
	// Value is called with each minute, in order, and returns false where the series has no sample.
	Value func(minute int) (float64, bool)
}

// minutesAtOnce is the length of one request.
const minutesAtOnce = 30

// Write writes the samples of some minutes after a time. Prometheus must run with
// --web.enable-remote-write-receiver, and must have no newer samples.
func Write(address string, from time.Time, minutes int, series []Series) error {
	labels := make([][]byte, len(series))
	for i, s := range series {
		labels[i] = labelsOf(s.Labels)
	}
	for begin := 0; begin < minutes; begin += minutesAtOnce {
		var request []byte
		for i, s := range series {
			one := slices.Clone(labels[i])
			hasSamples := false
			for minute := begin; minute < min(begin+minutesAtOnce, minutes); minute++ {
				value, ok := s.Value(minute)
				if !ok {
					continue
				}
				hasSamples = true
				var sample []byte
				sample = protowire.AppendTag(sample, 1, protowire.Fixed64Type)
				sample = protowire.AppendFixed64(sample, math.Float64bits(value))
				sample = protowire.AppendTag(sample, 2, protowire.VarintType)
				sample = protowire.AppendVarint(sample, uint64(from.Add(time.Duration(minute)*time.Minute).UnixMilli()))
				one = protowire.AppendTag(one, 2, protowire.BytesType)
				one = protowire.AppendBytes(one, sample)
			}
			if hasSamples {
				request = protowire.AppendTag(request, 1, protowire.BytesType)
				request = protowire.AppendBytes(request, one)
			}
		}
		if err := send(address, request); err != nil {
			return err
		}
	}
	return nil
}

// labelsOf encodes labels, which must be sorted.
func labelsOf(labels map[string]string) (encoded []byte) {
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		var label []byte
		for i, text := range []string{name, labels[name]} {
			label = protowire.AppendTag(label, protowire.Number(i+1), protowire.BytesType)
			label = protowire.AppendString(label, text)
		}
		encoded = protowire.AppendTag(encoded, 1, protowire.BytesType)
		encoded = protowire.AppendBytes(encoded, label)
	}
	return encoded
}

func send(address string, body []byte) error {
	request, err := http.NewRequest(http.MethodPost, address+"/api/v1/write", bytes.NewReader(block(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if said, _ := io.ReadAll(response.Body); response.StatusCode/100 != 2 {
		return fmt.Errorf("remote write: %s: %s", response.Status, said)
	}
	return nil
}

// block is a block in the format of Snappy that is not compressed: its length, and literals.
func block(body []byte) []byte {
	const longest = 1 << 16
	out := binary.AppendUvarint(make([]byte, 0, len(body)+len(body)/longest*3+16), uint64(len(body)))
	for part := range slices.Chunk(body, longest) {
		out = append(out, 61<<2) // a literal whose length less one follows in two bytes
		out = binary.LittleEndian.AppendUint16(out, uint16(len(part)-1))
		out = append(out, part...)
	}
	return out
}
