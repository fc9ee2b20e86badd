// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// The lists of the namespace shop, and of all namespaces.
func withBackupLists(server *apiServer) {
	list := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: kind}
	}
	for _, where := range []string{ours, ours + "/namespaces/shop"} {
		server.set(where+"/verticalscalercheckpoints", v1beta1.VerticalScalerCheckpointList{TypeMeta: list("VerticalScalerCheckpointList")})
		server.set(where+"/scalingpolicies", v1beta1.ScalingPolicyList{TypeMeta: list("ScalingPolicyList")})
	}
	server.set(ours+"/clusterscalingpolicies", v1beta1.ClusterScalingPolicyList{TypeMeta: list("ClusterScalingPolicyList"), Items: []v1beta1.ClusterScalingPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}}})
}

func TestBackup(t *testing.T) {
	for name, tc := range map[string]struct {
		args      string
		forbidden string
		code      int
		err       string
		has, not  []string
	}{
		"a namespace":       {args: "backup", has: []string{"# A backup of VerticalScaler", "kind: VerticalScaler\n", "kind: ScaledDeployment\n"}, not: []string{"kind: ClusterScalingPolicy"}},
		"all namespaces":    {args: "backup -A", has: []string{"kind: VerticalScaler\n", "kind: ClusterScalingPolicy\n"}},
		"without the right": {args: "backup", forbidden: ours + "/namespaces/shop/verticalscalercheckpoints", code: 1, err: "listing VerticalScalerCheckpoints: you may not"},
		"not installed":     {args: "backup -n elsewhere", code: 1, err: "the API server does not serve VerticalScalers: is the operator installed?"},
		"a name":            {args: "backup web", code: 2, err: `unknown command "web": see "kubectl vscaler backup --help"`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			withBackupLists(server)
			if tc.forbidden != "" {
				server.forbidden = []string{tc.forbidden}
			}
			out, errOut, code := run(t, nil, strings.Fields(tc.args)...)
			if errOut != tc.err || code != tc.code {
				t.Errorf("exit code %d, want %d: %q, want %q", code, tc.code, errOut, tc.err)
			}
			for _, want := range tc.has {
				if !strings.Contains(out, want) {
					t.Errorf("there is no %q in\n%s", want, out)
				}
			}
			for _, unwanted := range append(tc.not, "Ready", "resourceVersion") {
				if strings.Contains(out, unwanted) {
					t.Errorf("there is %q in\n%s", unwanted, out)
				}
			}
			if len(server.written) > 0 {
				t.Errorf("written %s", server.written)
			}
		})
	}
}

// Only the user may read the file. If it cannot be written, an older one stays.
func TestABackupIsAFileOfItsOwn(t *testing.T) {
	withBackupLists(newAPIServer(t))
	file := filepath.Join(t.TempDir(), "backup.yaml")
	out, errOut, code := run(t, nil, "backup", "-o", file)
	if code != 0 || errOut != "" || out != file+" written: 2 scalers, 0 of them with a history, 1 ScaledDeployments, 0 policies\n" {
		t.Fatalf("exit code %d: %s%s", code, errOut, out)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, code := run(t, nil, "backup", "-o", file); code != 0 {
		t.Errorf("a second backup: exit code %d", code)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Error("the same cluster gives another file")
	}
	if _, errOut, code := run(t, nil, "backup", "-o", filepath.Join(file, "no-folder")); code != 1 || !strings.HasPrefix(errOut, "creating the backup: ") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// What is wrong is found before the first change.
func TestRestoreRefuses(t *testing.T) {
	server := newAPIServer(t)
	withBackupLists(server)
	whole, _, _ := run(t, nil, "backup")
	for name, tc := range map[string]struct {
		args, stdin string
		code        int
		err         string
	}{
		"no file":               {args: "restore", code: 2, err: "name the file with -f"},
		"a name":                {args: "restore web", code: 2, err: `unknown command "web": see "kubectl vscaler restore --help"`},
		"a dry run of no sense": {args: "restore -f - --dry-run=maybe", stdin: whole, code: 2, err: `--dry-run "maybe" is not one of none, server, client`},
		"a missing file":        {args: "restore -f /nowhere/x", code: 1, err: "opening the backup: open /nowhere/x: no such file or directory"},
		"an edited file":        {args: "restore -f -", stdin: strings.Replace(whole, "deploymentName: web", "deploymentName: api", 1), code: 1, err: "reading -: the checksum is wrong: the file was cut off or edited. Nothing of it is used"},
		"no namespace":          {args: "restore -f -", stdin: whole, code: 1, err: "nothing was changed: namespace shop does not exist: create it and its Deployments first"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := run(t, strings.NewReader(tc.stdin), strings.Fields(tc.args)...)
			if out != "" || errOut != tc.err || code != tc.code {
				t.Errorf("exit code %d, want %d: %q, want %q\n%s", code, tc.code, errOut, tc.err, out)
			}
		})
	}
	if len(server.written) > 0 {
		t.Errorf("written %s", server.written)
	}
}

// The API server is asked about every change before the first one. Here, it refuses the last one.
func TestARefusedRestoreChangesNothing(t *testing.T) {
	server := newAPIServer(t)
	withBackupLists(server)
	web := server.objects[ours+"/namespaces/shop/verticalscalers/web"].(v1beta1.VerticalScaler)
	learned := &history.Container{}
	learned.Add(usage.Sample{Container: "app", Time: time.Now().Add(-time.Hour), CPUMillis: 200, MemoryBytes: 400 << 20}, history.DefaultParams())
	checkpoint := v1beta1.VerticalScalerCheckpoint{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScalerCheckpoint"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", OwnerReferences: []metav1.OwnerReference{{Kind: "VerticalScaler", Name: "web", UID: web.UID, Controller: new(true)}},
		},
		Spec: v1beta1.VerticalScalerCheckpointSpec{
			DeploymentName: "web", SaveTime: metav1.Now(), Containers: []v1beta1.ContainerCheckpoint{{ContainerName: "app", Version: history.Version, Data: learned.Encode()}},
		},
	}
	histories := ours + "/namespaces/shop/verticalscalercheckpoints"
	list := server.objects[histories].(v1beta1.VerticalScalerCheckpointList)
	list.Items = append(list.Items, checkpoint)
	server.set(histories, func(r *http.Request) any {
		if r.Method == http.MethodPost {
			return checkpoint
		}
		return list
	})
	server.set("/api/v1/namespaces/shop", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}})
	server.set(ours+"/namespaces/shop/verticalscalers/web/status", web)
	owners := server.objects[ours+"/namespaces/shop/scaleddeployments"].(v1beta1.ScaledDeploymentList)
	owners.Items = nil
	server.set(ours+"/namespaces/shop/scaleddeployments", owners)
	file, _, _ := run(t, nil, "backup")
	server.conflicts = 99
	_, errOut, code := run(t, strings.NewReader(file), "restore", "-f", "-")
	if want := "nothing was changed: VerticalScaler shop/web: annotating it: "; code != 1 || !strings.HasPrefix(errOut, want) {
		t.Errorf("exit code %d: %q, want %q", code, errOut, want)
	}
	if len(server.written) == 0 {
		t.Error("nothing was tried")
	}
	for _, written := range server.written {
		if !strings.Contains(written, "dryRun=All") {
			t.Errorf("written: %s", written)
		}
	}
}
