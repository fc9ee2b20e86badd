// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAFolderWithOtherFilesIsRefused(t *testing.T) {
	home := folder(t.TempDir())
	if err := home.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := home.prepare(); err == nil || !strings.Contains(err.Error(), "must be new or empty") {
		t.Errorf("prepare() = %v", err)
	}
}

func TestChildrenDoNotSeeTheUsersSettings(t *testing.T) {
	got := environment([]string{"PATH=/bin", "HOME=/home/me", "KUBECONFIG=x", "HTTPS_PROXY=y", "GOGC=50"}, "/d/home")
	want := []string{"LOCALCLUSTER_LIFELINE=1", "HOME=/d/home", "PATH=/bin", "GOGC=50"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("environment() = %q, want %q", got, want)
	}
}

func TestFreePortsAreDifferent(t *testing.T) {
	ports, err := freePorts(component{host: loopback, ports: 20})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if got := len(slices.Compact(ports)); got != 20 {
		t.Errorf("%d different ports, want 20", got)
	}
}
