// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// preparations are the commands of lines that begin with @. They change the cluster, or name another one.
//
//nolint:thelper // They are rows of a table.
var preparations = map[string]func(t *testing.T, s **apiServer, arg string){
	"adoptable": func(t *testing.T, s **apiServer, _ string) { *s = adoptable(t) },
	"fleet":     func(t *testing.T, s **apiServer, _ string) { *s = newFleetCluster(t) },
	"scaled":    func(t *testing.T, s **apiServer, _ string) { *s = newScaledCluster(t, scaledFleet) },
	"none":      func(t *testing.T, _ **apiServer, _ string) { withoutCluster(t) },
	"conflicts": func(_ *testing.T, s **apiServer, arg string) { _, _ = fmt.Sscan(arg, &(*s).conflicts) },
	"edit": func(t *testing.T, s **apiServer, arg string) { // a scaler, as a merge patch
		name, patch, _ := strings.Cut(arg, " ")
		(*s).edit(name, func(scaler *v1beta1.VerticalScaler) {
			must.Succeed(t, json.Unmarshal([]byte(patch), scaler))
		})
	},
	"forbid": func(_ *testing.T, s **apiServer, arg string) { (*s).forbidden = strings.Fields(arg) },
	"forget": func(_ *testing.T, s **apiServer, arg string) { (*s).forget(arg) },
	"lowered": func(_ *testing.T, s **apiServer, _ string) {
		(*s).edit("web", func(web *v1beta1.VerticalScaler) {
			web.Status.History = []v1beta1.HistoryEntry{{Message: "ScaleDown: app cpu 400m->230m"}}
		})
	},
	"may-not":  func(_ *testing.T, s **apiServer, _ string) { (*s).may(false) },
	"operator": func(_ *testing.T, s **apiServer, arg string) { (*s).lastHeardOf(arg, time.Second) },
	"policy":   func(_ *testing.T, s **apiServer, arg string) { (*s).ofPolicy(arg) },
	"put":      func(t *testing.T, s **apiServer, arg string) { (*s).putJSON(t, arg) },
	"prometheus": func(_ *testing.T, s **apiServer, _ string) { // in the cluster
		labels, ports := map[string]string{"app": "kube-prometheus-stack-prometheus"}, []corev1.ServicePort{{Name: "http-web", Port: 9090}}
		(*s).put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prom", Labels: labels}, Spec: corev1.ServiceSpec{Ports: ports}})
		(*s).answers["/api/v1/namespaces/monitoring/services/prom:http-web/proxy/api/v1/query"] = func(r *http.Request) any {
			w := httptest.NewRecorder()
			fleetPrometheus(w, r)
			return json.RawMessage(w.Body.Bytes())
		}
	},
	"refuse":      func(_ *testing.T, s **apiServer, arg string) { (*s).refused = arg },
	"rolled-back": func(t *testing.T, s **apiServer, _ string) { (*s).rolledBack(t) },
	"serves":      func(_ *testing.T, s **apiServer, arg string) { (*s).answer(arg, metav1.APIGroup{}) },
	"silent": func(t *testing.T, s **apiServer, arg string) {
		before, err := time.ParseDuration(arg)
		must.Succeed(t, err)
		(*s).lastHeard(before)
	},
	"unserved": func(_ *testing.T, s **apiServer, arg string) {
		(*s).answer(arg, failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	},
	"user": func(_ *testing.T, s **apiServer, arg string) {
		review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
		review.Status.UserInfo.Username = arg
		(*s).answer("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	},
	"version": func(_ *testing.T, s **apiServer, arg string) {
		(*s).answer("/version", apiversion.Info{GitVersion: arg})
	},
	"vpas": func(_ *testing.T, s **apiServer, _ string) { vpas(*s) },
}

// varying are the parts of results that differ in each run.
var varying = regexp.MustCompile(`\b(?:[0-9]{2}:){2}[0-9]{2}$|[0-9]+s ago|"?(?:lastHeard|time)"?: "[^"]*"|\.b-[0-9]+|[-0-9]{10}T[0-9:]{8}Z \([0-9a-z]+ ago\)|(?:reported since|stopped at) [-0-9TZ:]+`)

// TestCommands runs the commands in testdata, each on a cluster of its own. In a block, a line that begins with # is a title, with @
// a preparation, and with $ the command, whose standard input follows @stdin. What follows is the result: | begins a line of the standard output, ! of the standard
// error or the error, = is the exit code unless it is 0, and > begins what was asked to be changed. Rewrite results with
// -update, and read the difference.
//
// The command may name $PROMETHEUS, a Prometheus with usage; $WITHOUT(words), one that knows no metrics with these words; and
// $TMP, an empty folder.
func TestCommands(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		var got []string
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			title, _, _ := strings.Cut(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+strings.TrimPrefix(title, "# "), func(t *testing.T) {
				result := played(t, block)
				if diff := gocmp.Diff(block, result); diff != "" && !*golden.Update {
					t.Errorf("(-want +got):\n%s", diff)
				}
				got = append(got, result)
			})
		}
		if *golden.Update {
			must.Succeed(t, os.WriteFile(file, []byte(strings.Join(got, "\n\n")+"\n"), 0o600))
		}
	}
}

// played is a block with the result that it has.
func played(t *testing.T, block string) string {
	t.Helper()
	s, out, command, stdin := newAPIServer(t), "", "", ""
	for line := range strings.SplitSeq(block, "\n") {
		switch line[0] {
		case '@':
			name, arg, _ := strings.Cut(line[1:], " ")
			if name == "stdin" {
				stdin = strings.ReplaceAll(arg, `\n`, "\n")
				break
			}
			prepare, ok := preparations[name]
			if !ok {
				t.Fatalf("there is no preparation %s", name)
			}
			prepare(t, &s, arg)
		case '$':
			command = strings.TrimPrefix(line, "$ ")
		case '#':
		default:
			continue
		}
		out += line + "\n"
	}
	places := map[string]string{}
	for _, name := range regexp.MustCompile(`\$(?:PROMETHEUS|WITHOUT\([^)]*\)|TMP)`).FindAllString(command, -1) {
		switch words, isWithout := strings.CutPrefix(name, "$WITHOUT("); {
		case name == "$TMP":
			places[name] = t.TempDir()
		case isWithout:
			places[name] = serve(t, prometheusWithout(strings.TrimSuffix(words, ")")))
		default:
			places[name] = serve(t, fleetPrometheus)
		}
		command = strings.ReplaceAll(command, name, places[name])
	}
	args := strings.Fields(command)
	for i, arg := range args {
		args[i] = strings.Trim(arg, `"`)
	}
	stdout, stderr, code := run(t, strings.NewReader(stdin), args...)
	add := func(prefix, text string) {
		for name, place := range places {
			text = strings.ReplaceAll(text, place, name)
		}
		for line := range strings.Lines(text) {
			out += strings.TrimRight(prefix+varying.ReplaceAllString(strings.TrimRight(line, "\n"), "..."), " ") + "\n"
		}
	}
	add("| ", stdout)
	add("! ", stderr)
	if code != 0 {
		out += fmt.Sprintf("= %d\n", code)
	}
	add("> ", strings.Join(s.written, "\n"))
	return strings.TrimSpace(out)
}

// prometheusWithout is the Prometheus of the fleet, but has no metrics whose queries have the word, and refuses all requests for "401".
func prometheusWithout(word string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case word == "401":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.FormValue("query"), word):
			kind := map[bool]string{true: "matrix", false: "vector"}[strings.HasSuffix(r.URL.Path, "query_range")]
			fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":[]}}`, kind)
		default:
			fleetPrometheus(w, r)
		}
	}
}
