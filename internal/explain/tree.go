// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Node is an object, with the objects that belong to it.
type Node struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// State is a word or two about the object; empty if there is nothing to say.
	State string `json:"state,omitempty"`
	// CPU and Memory are the requests of a pod, without those of containers that are only injected.
	CPU      string `json:"cpu,omitempty"`
	Memory   string `json:"memory,omitempty"`
	Children []Node `json:"children,omitempty"`
	// Missing says what could not be read; only at the root.
	Missing []string `json:"missing,omitempty"`
}

// TreeOf are the objects around a scaler: the ScaledDeployment that owns it or the policy that has
// created it, if any, the Deployment and its running pods.
func TreeOf(e Evidence) Node {
	row := RowOf(e)
	if operators := e.Operators.Serving(*e.Scaler); len(operators) > 0 {
		row = row.Doubt(operators, e.Now)
	}
	scaler := Node{Kind: "VerticalScaler", Name: row.Name, State: row.Reason}
	deployment := Node{Kind: "Deployment", Name: row.Deployment}
	if e.Deployment != nil {
		d := e.Deployment
		desired := int32(1)
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		deployment.State = fmt.Sprintf("%d of %d pods are available", d.Status.AvailableReplicas, desired)
	}
	for _, pod := range e.Pods {
		deployment.Children = append(deployment.Children, podNode(e, pod))
	}
	slices.SortFunc(deployment.Children, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	if row.Owner == "" {
		scaler.Children = []Node{deployment}
		if origin := OriginOf(e.Scaler); origin != nil {
			return Node{Kind: origin.Kind, Name: origin.Name, Children: []Node{scaler}, Missing: e.Missing}
		}
		scaler.Missing = e.Missing
		return scaler
	}
	return Node{Kind: "ScaledDeployment", Name: row.Owner, Children: []Node{scaler, deployment}, Missing: e.Missing}
}

// PolicyTreeOf are a policy, the scalers that it has created, as far as they are in the evidence, and their
// Deployments.
func PolicyTreeOf(e PolicyEvidence) Node {
	row := PolicyRowOf(e.Policy).Doubt(e.Operators, e.Now)
	root := Node{Kind: row.Kind, Name: row.Name, State: row.Reason, Missing: e.Missing}
	for i := range e.Scalers {
		s := RowOf(Evidence{Scaler: &e.Scalers[i]})
		if s.Policy != row.ID() {
			continue
		}
		if operators := e.Operators.Serving(e.Scalers[i]); len(operators) > 0 {
			s = s.Doubt(operators, e.Now)
		}
		deployment := Node{Kind: "Deployment", Name: s.Deployment, CPU: s.CPU, Memory: s.Memory}
		root.Children = append(root.Children, Node{Kind: "VerticalScaler", Name: s.Name, State: s.Reason, Children: []Node{deployment}})
	}
	slices.SortFunc(root.Children, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return root
}

// podNode is a pod with what its containers request, and whether that is what is decided.
func podNode(e Evidence, pod workload.Pod) Node {
	var requests quantity.Amounts
	isAtSize := e.Scaler.Status.Decision != nil
	for _, name := range containersOf(e) {
		c, ok := pod.Container(name)
		if !ok || c.Unreadable {
			continue
		}
		requests.CPUMillis += c.Requests.CPUMillis
		requests.MemoryBytes += c.Requests.MemoryBytes
		for _, resource := range []string{"cpu", "memory"} {
			decided := resourceOf(e, name, resource, recommendationOf(e.Scaler, name)).Decided
			if has := amountOf(resource, of(resource, c.Requests)); decided != nil && (has == nil || *has != *decided) {
				isAtSize = false
			}
		}
	}
	out := Node{Kind: "Pod", Name: pod.Name, CPU: quantity.FormatCPU(requests.CPUMillis), Memory: quantity.FormatMemory(requests.MemoryBytes)}
	switch {
	case isAtSize:
		out.State = "has the decided size"
	case e.Scaler.Status.Decision != nil:
		out.State = "has another size"
	}
	return out
}

// WriteJSON writes the tree as JSON.
func (n Node) WriteJSON(w io.Writer) error { return writeJSON(w, n) }

// WriteYAML writes it as YAML.
func (n Node) WriteYAML(w io.Writer) error { return writeYAML(w, n) }

// WriteText writes it as a table, in which what belongs to an object is indented.
func (n Node) WriteText(w io.Writer, _ time.Time) error {
	var b strings.Builder
	table(&b, []string{"OBJECT", "STATE", "CPU", "MEMORY"}, n.lines("", ""), &[]int{})
	for _, missing := range n.Missing {
		fmt.Fprintln(&b, printable("Not included: "+missing))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines are the object and what belongs to it. first stands before the object, and rest before what
// belongs to it.
func (n Node) lines(first, rest string) [][]string {
	lines := [][]string{{first + n.Kind + "/" + n.Name, n.State, n.CPU, n.Memory}}
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			lines = append(lines, child.lines(rest+"└─", rest+"  ")...)
			continue
		}
		lines = append(lines, child.lines(rest+"├─", rest+"│ ")...)
	}
	return lines
}
