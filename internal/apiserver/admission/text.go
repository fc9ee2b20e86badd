// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
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
	return strings.Replace(line, afterName, afterName+"@"+string(n.ReplicaSetUID)+";", 1)
}

// Line is the line of a Deployment, without its end: "web/5 app,100m,64Mi,,128Mi;proxy,50m,,,". It is empty without
// sizes. Sizes must be for the containers of that Deployment. LineOf adds a ReplicaSet to it.
//
// A container with a request above its limit is left out: the API server would reject the pod.
func Line(deployment string, sizes []v1beta1.NewPodContainer) string {
	var containers []string
	for _, s := range sizes {
		s.Requests.CPU, s.Limits.CPU = cmp.Or(s.StartupRequests.CPU, s.Requests.CPU), cmp.Or(s.StartupLimits.CPU, s.Limits.CPU)
		if !exceeds(s.Requests.CPU, s.Limits.CPU) && !exceeds(s.Requests.Memory, s.Limits.Memory) && (s.Requests.CPU != nil || s.Requests.Memory != nil) {
			containers = append(containers, strings.Join([]string{
				s.ContainerName, text(s.Requests.CPU), text(s.Requests.Memory), text(s.Limits.CPU), text(s.Limits.Memory),
			}, ","))
		}
	}
	if len(containers) == 0 {
		return ""
	}
	return deployment + afterName + strings.Join(containers, ";")
}

func exceeds(request, limit *resource.Quantity) bool {
	if request == nil || limit == nil {
		return false
	}
	copied := request.DeepCopy() // Comparing may change how an amount is stored, and the sizes may be in a cache.
	return copied.Cmp(limit.DeepCopy()) > 0
}

// text formats an amount as the API server does in a pod, so that the two can be compared; empty for
// nil.
func text(amount *resource.Quantity) string {
	if amount == nil {
		return ""
	}
	copied := amount.DeepCopy() // String stores its result in the amount, which may be in a cache.
	return copied.String()
}

// Texts puts lines, ordered by name, into the first texts with room, of at most longest bytes each. A longer line is
// left out, and its Deployment's pods start as in the template.
//
// The line of a Deployment stays in its text of before, unless that text becomes too long: its last lines then move to
// other texts. So only texts that shrink lose a line to another. The first texts are the texts of before, and may be
// empty.
func Texts(lines map[string]string, longest int, before ...string) []string {
	home, placed := homes(before), make([]page, len(before), len(before)+1)
	put := func(i int, name string) {
		placed[i].names, placed[i].size = append(placed[i].names, name), placed[i].size+len(lines[name])+1
	}
	hasRoom := func(i int, name string) bool { return 1+placed[i].size+len(lines[name])+1 <= longest }
	var homeless []string
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		i, isKnown := home[name]
		switch {
		case len(lines[name])+2 > longest:
		case isKnown && hasRoom(i, name):
			put(i, name)
		default:
			if isKnown {
				placed[i].isFull = true
			}
			homeless = append(homeless, name)
		}
	}
	for _, name := range homeless {
		i := 0
		for i < len(placed) && (placed[i].isFull || !hasRoom(i, name)) {
			i++
		}
		if i == len(placed) {
			placed = append(placed, page{})
		}
		put(i, name)
	}
	var texts []string
	for _, page := range placed {
		texts = append(texts, page.text(lines))
	}
	return texts
}

// homes are the numbers of the texts that have the line of each Deployment.
func homes(texts []string) map[string]int {
	home := map[string]int{}
	for i, text := range slices.Backward(texts) {
		for line := range strings.Lines(text) {
			home[DeploymentOf(line)] = i
		}
	}
	return home
}

// page is the content of one text.
type page struct {
	names  []string
	size   int
	isFull bool // it loses lines, so it gets none from other texts
}

func (p page) text(lines map[string]string) string {
	slices.Sort(p.names)
	var text strings.Builder
	for i, name := range p.names {
		if i == 0 {
			text.WriteByte('\n')
		}
		text.WriteString(lines[name] + "\n")
	}
	return text.String()
}

// DeploymentOf is the name of the Deployment of a line; empty if the line has another form.
func DeploymentOf(line string) string {
	name, _, ok := strings.Cut(line, afterName)
	if !ok {
		return ""
	}
	return name
}

// HasLine reports whether a text has exactly that line.
func HasLine(text, line string) bool { return line != "" && strings.Contains(text, "\n"+line+"\n") }

// HasDeployment reports whether a text has a line of a Deployment.
func HasDeployment(text, deployment string) bool {
	return strings.Contains(text, "\n"+deployment+afterName)
}
