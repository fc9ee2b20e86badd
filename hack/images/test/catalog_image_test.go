//go:build images

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// Longer than a catalog takes to start on a busy machine.
const patience = 2 * time.Minute

// The test builds the image, unpacks it, runs it as its user, and asks what OLM would ask.
func TestCatalogImageServesTheCatalog(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("PLATFORMS", "")
	archive := buildImage(t, repository, scratch, "catalog", "localhost/verticalscaler-operator-catalog-check:dev")
	address := serve(t, archive)

	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()

	packages := ask(t, connection, "ListPackages")
	if diff := cmp.Diff([]string{"verticalscaler-operator"}, texts(packages, 1)); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	var got, want []string
	for _, bundle := range ask(t, connection, "ListBundles") {
		// Each bundle comes once for each of its channels: csvName, packageName, channelName.
		one := []map[protowire.Number]string{bundle}
		got = append(got, strings.Join([]string{texts(one, 3)[0], texts(one, 2)[0], texts(one, 1)[0]}, " "))
	}
	committed := parse(t, read(t, repository+"/catalog/verticalscaler-operator/catalog.yaml"))
	for channel, entries := range committed.channels {
		for _, e := range entries {
			want = append(want, strings.Join([]string{channel, "verticalscaler-operator", e.Name}, " "))
		}
	}
	sorted := cmp.Transformer("set", func(lines []string) map[string]int {
		set := map[string]int{}
		for _, line := range lines {
			set[line]++
		}
		return set
	})
	if diff := cmp.Diff(want, got, sorted); diff != "" {
		t.Errorf("bundles (-want +got):\n%s", diff)
	}
	if len(want) < 3 {
		t.Errorf("the catalog has %d entries, want one in each of three channels at least", len(want))
	}
}

// serve runs the image until the test ends, and waits as the kubelet would: with the probe that OLM gives to catalogs.
func serve(t *testing.T, archive string) (address string) {
	t.Helper()
	root, config := unpack(t, archive)
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	in := []string{"--userspec=" + config.User, root}
	args := slices.Concat(in, config.Entrypoint, config.Cmd, []string{"--port=" + port, "--pprof-addr="})
	server := exec.CommandContext(t.Context(), "chroot", args...)
	var output bytes.Buffer
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		failure = server.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
	})
	deadline := time.Now().Add(patience)
	for {
		probe := slices.Concat(in, []string{"/bin/grpc_health_probe", "-addr=" + address, "-rpc-timeout=5s"})
		said, err := exec.CommandContext(t.Context(), "chroot", probe...).CombinedOutput()
		if err == nil {
			return address
		}
		select {
		case <-ended:
			t.Fatalf("the catalog has ended: %v\n%s", failure, output.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the catalog does not answer: %s\n%s", said, output.String())
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// ask calls a method of OLM's registry API that takes nothing and streams messages. It returns the text fields of those by
// their numbers, so that OLM's own types are not needed.
func ask(t *testing.T, connection *grpc.ClientConn, method string) []map[protowire.Number]string {
	t.Helper()
	stream, err := connection.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/api.Registry/"+method,
		grpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(&[]byte{}), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var messages []map[protowire.Number]string
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			return messages
		}
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		messages = append(messages, decode(t, message))
	}
}

// decode returns the text fields of a message.
func decode(t *testing.T, message []byte) map[protowire.Number]string {
	t.Helper()
	fields := map[protowire.Number]string{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
		if kind == protowire.BytesType {
			fields[number], _ = protowire.ConsumeString(message)
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		message = message[n:]
	}
	return fields
}

func texts(messages []map[protowire.Number]string, field protowire.Number) []string {
	var found []string
	for _, message := range messages {
		found = append(found, message[field])
	}
	return found
}

// raw hands messages over as they are on the wire.
type raw struct{}

func (raw) Name() string                      { return "proto" }
func (raw) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (raw) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = bytes.Clone(data)
	return nil
}
