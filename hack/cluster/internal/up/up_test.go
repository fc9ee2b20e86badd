// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/pki"
)

func TestAFolderServesOneClusterAtATime(t *testing.T) {
	home := folder(t.TempDir())
	release, err := home.claim()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := home.claim(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second claim: %v, want that the folder is in use", err)
	}
	release()
	if release, err = home.claim(); err != nil {
		t.Errorf("claim after release: %v", err)
	}
	release()
}

func TestAFolderWithOtherPeoplesFilesIsRefused(t *testing.T) {
	home := folder(t.TempDir())
	if err := os.Mkdir(home.path("logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := home.claim(); err == nil || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("claim: %v, want that the folder is not ours", err)
	}
}

func TestClearTouchesOnlyOurFiles(t *testing.T) {
	home := folder(t.TempDir())
	for _, name := range []string{"ready", "admin.kubeconfig", "notes.txt"} {
		if err := os.WriteFile(home.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := home.clear(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"ready": false, "admin.kubeconfig": false, "notes.txt": true, "logs": true} {
		if _, err := os.Stat(home.path(name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestChildrenDoNotSeeTheUsersSettings(t *testing.T) {
	got := environment([]string{"PATH=/bin", "HOME=/home/me", "KUBECONFIG=x", "HTTPS_PROXY=y", "GOGC=50"}, "/d/home")
	want := []string{"LOCALCLUSTER_LIFELINE=1", "HOME=/d/home", "PATH=/bin", "GOGC=50"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("environment() = %q, want %q", got, want)
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	cases := map[string]struct {
		content string
		want    string
	}{
		"a short file is shown whole":  {"a\nb\n", "a\nb"},
		"a long file is shown in part": {"a\nb\nc\nd\n", "b\nc\nd"},
		"an empty file shows nothing":  {"", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := tail(file, 3); got != tc.want {
				t.Errorf("tail() = %q, want %q", got, tc.want)
			}
		})
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
		"everywhere is reached by the loopback address": {
			options: Options{Bind: "0.0.0.0", Controllers: true},
			want:    []string{"--bind-address=0.0.0.0", "--advertise-address=127.0.0.1"},
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
		"the audit log has a policy of ours": {
			options: Options{Bind: "127.0.0.1", Audit: true},
			want:    []string{"--audit-log-path=/d/audit.log", "--audit-policy-file=/d/audit-policy.yaml"},
		},
		"the audit log may have another policy": {
			options: Options{Bind: "127.0.0.1", Audit: true, AuditPolicy: "/p.yaml"},
			want:    []string{"--audit-policy-file=/p.yaml"},
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
