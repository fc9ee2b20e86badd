// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/pki"
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

func TestOnlyOurParentCanBeFollowed(t *testing.T) {
	if _, err := untilParentEnds(t.Context(), os.Getpid()); err == nil || !strings.Contains(err.Error(), "has not started us") {
		t.Errorf("untilParentEnds() = %v, want that the process is not our parent", err)
	}
	if _, err := untilParentEnds(t.Context(), os.Getppid()); err != nil {
		t.Error(err)
	}
}

func TestAPIServerArguments(t *testing.T) {
	authority := func(name string) *pki.Authority {
		a, err := pki.NewAuthority(t.TempDir(), name, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ca, proxyCA := authority("ca"), authority("front-proxy-ca")
	cases := map[string]struct {
		options Options
		want    []string
		not     string
	}{
		"on the loopback address there are no endpoints": {
			options: Options{Bind: "127.0.0.1", Controllers: true},
			want:    []string{"--endpoint-reconciler-type=none", "--advertise-address=127.0.0.1", "--secure-port=7"},
			not:     "--audit",
		},
		"a real address has endpoints": {
			options: Options{Bind: "10.250.0.2", Controllers: true},
			want:    []string{"--advertise-address=10.250.0.2"},
			not:     "--endpoint-reconciler-type",
		},
		"without controllers pods need no service account": {
			options: Options{Bind: "127.0.0.1"},
			want:    []string{"--disable-admission-plugins=ServiceAccount"},
		},
		"requests are logged by a policy": {
			options: Options{Bind: "127.0.0.1", AuditPolicy: "/p.yaml"},
			want:    []string{"--audit-log-path=/d/audit.log", "--audit-policy-file=/p.yaml"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.options.APIServerArgs = []string{"--last=1"}
			got := apiServer(tc.options, "/d", ca, proxyCA, 6).args([]int{7})
			for _, want := range append(tc.want, "--etcd-servers=https://127.0.0.1:6") {
				if !slices.Contains(got, want) {
					t.Errorf("%s is missing in %q", want, got)
				}
			}
			if tc.not != "" && strings.Contains(strings.Join(got, " "), tc.not) {
				t.Errorf("%s is in %q", tc.not, got)
			}
			if got[len(got)-1] != "--last=1" {
				t.Errorf("the user's argument is not the last one, so ours may win: %q", got)
			}
		})
	}
}
