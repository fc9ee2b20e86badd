// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The README shows the output of kubectl get after four of six pods were resized: less CPU and more
// memory.
func TestTheReadmeShowsWhatKubectlGetPrints(t *testing.T) {
	s := aScope(planned("Resizing", "Pods are being resized in place"), func(s *scope) {
		s.plan.Verdict.State = plan.Changing
		s.plan.Decision.Requests = map[string]quantity.Amounts{"app": amounts(310, 640)}
		s.plan.Progress = plan.Progress{PodsAtSize: 4, Pods: 6}
		before, after := amounts(500, 512), amounts(310, 640)
		s.observation.situation.Pods = pods(after, before, after, after, before, after)
	})
	vs := checkout(withMode(v1beta1.UpdateModeInPlace), func(vs *v1beta1.VerticalScaler) {
		vs.CreationTimestamp = metav1.NewTime(noon.Add(-12 * 24 * time.Hour))
	})
	completeFor(vs, s)
	vs.Status = s.status
	readme, err := os.ReadFile("../../README.md")
	must.Succeed(t, err)
	_, shown, _ := strings.Cut(string(readme), "$ kubectl get vscaler -n shop\n")
	shown, _, _ = strings.Cut(shown, "```")
	assert.Equal(t, "README.md", strings.Split(kubectlGet(t, vs), "\n"), strings.Split(shown, "\n"))
}

// kubectlGet is the table of one scaler at noon, with the columns of the CRD.
func kubectlGet(t *testing.T, vs *v1beta1.VerticalScaler) string {
	t.Helper()
	file, err := os.ReadFile("../../config/crd/bases/autoscaling.verticalscaler.io_verticalscalers.yaml")
	must.Succeed(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	must.Succeed(t, yaml.Unmarshal(file, &crd))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vs)
	must.Succeed(t, err)
	names, cells := []string{"NAME"}, []string{vs.Name}
	for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		if column.Priority > 0 {
			continue // only with -o wide
		}
		path := jsonpath.New(column.Name).AllowMissingKeys(true)
		must.Succeed(t, path.Parse("{"+column.JSONPath+"}"))
		var cell bytes.Buffer
		must.Succeed(t, path.Execute(&cell, object))
		value := cell.String()
		if column.Type == "date" {
			since, err := time.Parse(time.RFC3339, value)
			must.Succeed(t, err)
			value = duration.HumanDuration(noon.Sub(since))
		}
		names, cells = append(names, strings.ToUpper(column.Name)), append(cells, value)
	}
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 6, 4, 3, ' ', 0) // as kubectl aligns
	fmt.Fprintf(table, "%s\n%s\n", strings.Join(names, "\t"), strings.Join(cells, "\t"))
	must.Succeed(t, table.Flush())
	return out.String()
}
