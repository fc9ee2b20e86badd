// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"reflect"
	"testing"
)

func TestChoose(t *testing.T) {
	cases := map[string]struct {
		mountinfo   string
		controllers map[string][]string
		want        Layout
		fails       bool
	}{
		"Version 1 with shared and named trees; the empty version 2 tree of a hybrid host is ignored": {
			mountinfo: "1 0 0:1 / / rw - ext4 /dev/a rw\n" +
				"2 1 0:2 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
				"3 1 0:3 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
				"4 1 0:4 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
				"5 1 0:3 / /mnt/again rw - cgroup cgroup rw,memory\n" +
				"6 1 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			controllers: map[string][]string{"/sys/fs/cgroup/unified": {"hugetlb"}},
			want: Layout{Version: 1, Trees: []Tree{
				{Mount: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
				{Mount: "/sys/fs/cgroup/memory", Controllers: []string{"memory"}},
				{Mount: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
			}},
		},
		"Version 2 alone": {
			mountinfo:   "6 1 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
			controllers: map[string][]string{"/sys/fs/cgroup": {"cpuset", "cpu", "io", "memory", "pids"}},
			want:        Layout{Version: 2, Trees: []Tree{{Mount: "/sys/fs/cgroup"}}},
		},
		"Version 2 without the memory controller is no use": {
			mountinfo:   "6 1 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			controllers: map[string][]string{"/sys/fs/cgroup": {"cpu"}},
			fails:       true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := choose(tc.mountinfo, func(mount string) []string { return tc.controllers[mount] })
			if (err != nil) != tc.fails {
				t.Fatalf("choose() error = %v, want error %v", err, tc.fails)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("choose() = %+v, want %+v", got, tc.want)
			}
		})
	}
}
