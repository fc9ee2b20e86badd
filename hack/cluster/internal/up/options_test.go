// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defaults := Options{
		Dir: dir, Controllers: true, Scheduler: true, Bind: "127.0.0.1",
		MetricResolution: 10 * time.Second, Timeout: 3 * time.Minute,
	}
	cases := map[string]struct {
		args []string
		want func(*Options)
	}{
		"only the folder is needed": {want: func(*Options) {}},
		"components can be chosen": {
			args: []string{"-kwok-nodes", "3", "-metrics-server", "-controllers=false", "-scheduler=false"},
			want: func(o *Options) { o.FakeNodes, o.MetricsServer, o.Controllers, o.Scheduler = 3, true, false, false },
		},
		"a policy implies the audit log": {
			args: []string{"-audit-policy", policy},
			want: func(o *Options) { o.Audit, o.AuditPolicy = true, policy },
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
		"no folder":                     {nil, "-dir is missing"},
		"too many nodes":                {[]string{"-dir", "x", "-kwok-nodes", "251"}, "allowed is 0 to 250"},
		"less than no nodes":            {[]string{"-dir", "x", "-kwok-nodes", "-1"}, "allowed is 0 to 250"},
		"a name as address":             {[]string{"-dir", "x", "-bind", "localhost"}, "allowed is an IPv4 address"},
		"a port that does not exist":    {[]string{"-dir", "x", "-port", "65536"}, "allowed is 0 to 65535"},
		"a resolution that is too fine": {[]string{"-dir", "x", "-metric-resolution", "5s"}, "allowed is 10s and more"},
		"a policy that does not exist":  {[]string{"-dir", "x", "-audit-policy", "no such file"}, "-audit-policy"},
		"a node with an odd name":       {[]string{"-dir", "x", "-node", "Real Node"}, "-node"},
		"an unknown flag":               {[]string{"-dir", "x", "-nonsense"}, "nonsense"},
		"words after the flags":         {[]string{"-dir", "x", "more"}, `unexpected argument "more"`},
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

func TestHelpNamesEveryFlag(t *testing.T) {
	var out bytes.Buffer
	if _, err := Parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("Parse() = %v, want help", err)
	}
	for _, name := range []string{
		"dir", "kwok-nodes", "metrics-server", "controllers", "scheduler", "audit", "audit-policy", "node",
		"bind", "port", "apiserver-arg", "metric-resolution", "parent-pid", "timeout",
	} {
		if !strings.Contains(out.String(), "  -"+name) {
			t.Errorf("the help does not name -%s", name)
		}
	}
}
