// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import "testing"

func TestParseContainerdVersion(t *testing.T) {
	cases := map[string]ContainerdVersion{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3":                 {1, 6},
		"containerd containerd.io v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1":                    {2, 1},
		"containerd github.com/containerd/containerd 1.7.28":                                          {1, 7},
		"containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da":                    {1, 7},
		"containerd github.com/containerd/containerd/v2 v2.0.0-rc.3 27de5fea738a38345aa1ac7569032261": {2, 0},
	}
	for text, want := range cases {
		got, err := ParseContainerdVersion(text)
		if err != nil || got != want {
			t.Errorf("ParseContainerdVersion(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	if _, err := ParseContainerdVersion("containerd: not found"); err == nil {
		t.Error("ParseContainerdVersion() of nonsense gave no error")
	}
}
