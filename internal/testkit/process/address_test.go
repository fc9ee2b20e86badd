// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

func TestFreeAddress(t *testing.T) {
	lowest := 32768
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if lowest, err = strconv.Atoi(strings.Fields(string(content))[0]); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for range 200 {
		address, err := process.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Errorf("%s is returned twice", address)
		}
		seen[address] = true
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if port, err := strconv.Atoi(text); err != nil || port >= lowest {
			t.Errorf("an outgoing connection can take %s: those begin at port %d", address, lowest)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
	}
}
