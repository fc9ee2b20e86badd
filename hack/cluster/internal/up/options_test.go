// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	defaults := Options{Dir: dir, Controllers: true, Scheduler: true, Bind: "127.0.0.1", Timeout: 3 * time.Minute}
	cases := map[string]struct {
		args []string
		want func(*Options)
	}{
		"only the folder is needed": {want: func(*Options) {}},
		"components can be chosen": {
			args: []string{"-kwok-nodes", "3", "-metrics-server", "-controllers=false", "-scheduler=false"},
			want: func(o *Options) { o.FakeNodes, o.MetricsServer, o.Controllers, o.Scheduler = 3, true, false, false },
		},
		"arguments of the API server add up, with and without dashes": {
			args: []string{"-apiserver-arg", "v=4", "-apiserver-arg=--feature-gates=A=true"},
			want: func(o *Options) { o.APIServerArgs = []string{"--v=4", "--feature-gates=A=true"} },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := defaults
			tc.want(&want)
			got, err := Parse(append([]string{"-dir", dir}, tc.args...), new(bytes.Buffer))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Parse() = %+v, want %+v", got, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"no folder":             {nil, "-dir is missing"},
		"too many nodes":        {[]string{"-dir", "x", "-kwok-nodes", "251"}, "allowed is 0 to 250"},
		"an unknown flag":       {[]string{"-dir", "x", "-nonsense"}, "nonsense"},
		"words after the flags": {[]string{"-dir", "x", "more"}, `unexpected argument "more"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.args, new(bytes.Buffer))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}
