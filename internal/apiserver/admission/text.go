// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// MaxText is the longest text of one NewPodSizes, in bytes. With longer ones, the policy can exceed the cost
// that the API server allows to an expression, and then has no effect.
const MaxText = 256 << 10

// LineOf is the line of a scaler's Deployment with these sizes. In the mode Initial, all new pods get them. In any other mode,
// only pods of the ReplicaSet that has run with them do: of any other one, new pods get the larger of the sizes and their
// template's.
func LineOf(s *v1beta1.VerticalScaler, n v1beta1.NewPods) string {
	line := Line(s.Spec.DeploymentName, n.Containers)
	if line == "" || s.Spec.UpdatePolicy.UpdateMode == v1beta1.UpdateModeInitial {
		return line
	}
	return strings.Replace(line, " ", " @"+string(n.ReplicaSetUID)+";", 1)
}

// Line is the line of a Deployment, without its end: "web app,100m,64Mi,,128Mi;proxy,50m,,,". It is empty if there
// is nothing to set. Sizes must be for the containers of that Deployment. LineOf adds a ReplicaSet to it.
//
// A container with a request above its limit is left out: the API server would refuse the pod.
func Line(deployment string, sizes []v1beta1.NewPodContainer) string {
	var containers []string
	for _, s := range sizes {
		if !exceeds(s.Requests.CPU, s.Limits.CPU) && !exceeds(s.Requests.Memory, s.Limits.Memory) && (s.Requests.CPU != nil || s.Requests.Memory != nil) {
			containers = append(containers, strings.Join([]string{
				s.ContainerName, text(s.Requests.CPU), text(s.Requests.Memory), text(s.Limits.CPU), text(s.Limits.Memory),
			}, ","))
		}
	}
	if len(containers) == 0 {
		return ""
	}
	return deployment + " " + strings.Join(containers, ";")
}

func exceeds(request, limit *resource.Quantity) bool {
	if request == nil || limit == nil {
		return false
	}
	copied := request.DeepCopy() // Comparing may change how an amount is stored, and the sizes may be in a cache.
	return copied.Cmp(limit.DeepCopy()) > 0
}

// text is an amount in the form in which the API server writes it into a pod, so that the two can be
// compared; empty for none.
func text(amount *resource.Quantity) string {
	if amount == nil {
		return ""
	}
	copied := amount.DeepCopy() // String stores its result in the amount, which may be in a cache.
	return copied.String()
}

// Texts puts lines, in their order by name, into as few texts as they fit in, each of at most longest bytes.
// A line that is longer than that is left out, and its Deployment's pods start as in the template.
func Texts(lines map[string]string, longest int) (texts []string) {
	var next strings.Builder
	finish := func() {
		if next.Len() > 0 {
			texts = append(texts, next.String())
			next.Reset()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		line := lines[name] + "\n"
		if len(line)+1 > longest {
			continue
		}
		if next.Len()+len(line) > longest {
			finish()
		}
		if next.Len() == 0 {
			next.WriteByte('\n')
		}
		next.WriteString(line)
	}
	finish()
	return texts
}

// HasLine reports whether a text has exactly that line.
func HasLine(text, line string) bool { return line != "" && strings.Contains(text, "\n"+line+"\n") }

// HasDeployment reports whether a text has a line of a Deployment.
func HasDeployment(text, deployment string) bool { return strings.Contains(text, "\n"+deployment+" ") }
