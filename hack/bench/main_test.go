// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const printed = `goos: linux
cpu: A CPU @ 2 GHz
BenchmarkLookup/scalers=100/found=1-8   	 10	   3400 indexed-list:cpu-ns	   200 operator:cpu-ns	 5 B/op
BenchmarkLookup/scalers=10000/found=1-8 	 10	   4400 indexed-list:cpu-ns	   220 operator:cpu-ns
BenchmarkBudget/waiting=1000-8          	 10	   116499 operator:cpu-ns
BenchmarkOrder-8                        	 1	   4999 client-go:kill	   0 operator:kill
BenchmarkMemory-8                       	 1	   10400 operator:B/foreign-pod	   20800 stock-cache:B/foreign-pod
BenchmarkHeap/kept/containers=2000/age=10m-8 	 1	   4513 operator:B/container	   5559 vpa:B/container	   0.81 ours/vpa
BenchmarkUnknown-8                      	 1	   1 operator:B/nothing
PASS
`

func TestResultsBecomeOneTable(t *testing.T) {
	results, err := parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	const want = `| What | Case | Operator | Beside the first case | Compared with | Its value | Its value / operator's |
|---|---|---|---|---|---|---|
| Scalers of a Deployment, looked up: CPU | scalers 100, found 1 | 200 ns | 1 | ` + "`client.List` with a field index" + ` | 3.4 µs | 17 |
| Scalers of a Deployment, looked up: CPU | scalers 10000, found 1 | 220 ns | 1.1 | ` + "`client.List` with a field index" + ` | 4.4 µs | 20 |
| Call of a full change budget: CPU | waiting 1000 | 116 µs | 1 | | | |
| Of 5,000 routine requests, served before an OOM kill |  | 0 | 1 | client-go | 4999 |  |
| Pod that no scaler names: live heap |  | 10.4 kB | 1 | cache of controller-runtime, without a history | 20.8 kB | 2 |
| History of a container: live heap | kept, containers 2000, age 10m | 4.51 kB | 1 | VPA's packages | 5.56 kB | 1.2 |
`
	if diff := cmp.Diff(want, table(results)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestBrokenResultsAreAnError(t *testing.T) {
	for _, line := range []string{"BenchmarkX-8 1 5 a:ns 6\n", "BenchmarkX-8 1 five a:ns\n"} {
		if got, err := parse(line); err == nil {
			t.Errorf("%q was read as %v", line, got)
		}
	}
}

func TestValuesAreReadable(t *testing.T) {
	for _, tc := range []struct {
		value float64
		unit  string
		want  string
	}{
		{207.4, "cpu-ns", "207 ns"},
		{999.6, "cpu-ns", "1 µs"},
		{1.129e6, "cpu-ns", "1.13 ms"},
		{36e9, "cpu-ns", "36 s"},
		{4e13, "p99-ns", "4e+04 s"},
		{3.45, "µs/minute", "3.45 µs"},
		{0, "B/scaler", "0 B"},
		{52_100, "B/scaler", "52.1 kB"},
	} {
		if got := quantity(tc.value, tc.unit); got != tc.want {
			t.Errorf("%v %s is %q, not %q", tc.value, tc.unit, got, tc.want)
		}
	}
}

func TestOnlyTheCommandsPartOfThePageChanges(t *testing.T) {
	const page = "# Page\n<!-- make bench ARGS=-record -->\nold\n<!-- end -->\ntext\n<!-- make other ARGS=-record -->\nkept\n<!-- end -->\n"
	got, err := replace(page, "make bench", "new\n")
	if want := strings.Replace(page, "old\n", "\nnew\n\n", 1); err != nil || got != want {
		t.Errorf("page %q, %v; want %q", got, err, want)
	}
	if got, err := replace(page, "make nothing", "new\n"); err == nil {
		t.Errorf("a page without the command became %q", got)
	}
}

// The benchmarks, and the page with their results, must be there.
func TestTheSuitesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, s := range suites {
		if _, err := os.Stat(filepath.Join(root, s.folder, s.pkg)); err != nil {
			t.Error(err)
		}
	}
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replace(string(content), "make bench", ""); err != nil {
		t.Error(err)
	}
}
