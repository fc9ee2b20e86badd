// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ClusterAccess is the part of the cluster that the operator cannot read. It is the same for
// all scalers, for as long as the operator runs.
type ClusterAccess struct {
	// Namespaces are the namespaces that the operator watches, sorted; none means all.
	Namespaces []string
	// NodesForbidden means that all namespaces are watched, but nodes may not be read.
	NodesForbidden bool
}

// maxNamespacesNamed keeps the condition's message short.
const maxNamespacesNamed = 10

// Condition is the condition ClusterAccess. There is none (false) with full access. It does
// not influence Ready: the scaler works without the access.
func (a ClusterAccess) Condition() (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: v1beta1.ConditionClusterAccess, Status: metav1.ConditionFalse}
	switch {
	case len(a.Namespaces) > 0:
		c.Reason = v1beta1.ReasonNamespacedInstall
		c.Message = fmt.Sprintf("The operator is installed only for %s. It reads no nodes, so a size that no node can hold is "+
			"found only when it is refused; admission policies are cluster-wide, and out of its reach", a.watched())
	case a.NodesForbidden:
		c.Reason = v1beta1.ReasonNodesForbidden
		c.Message = "The operator may not list and watch nodes, so a size that no node can hold is found only when it is refused"
	default:
		return c, false
	}
	return c, true
}

func (a ClusterAccess) watched() string {
	names, more := a.Namespaces, len(a.Namespaces)-maxNamespacesNamed
	switch {
	case len(names) == 1:
		return "the namespace " + names[0]
	case more > 0:
		return fmt.Sprintf("the namespaces %s and %d more", strings.Join(names[:maxNamespacesNamed], ", "), more)
	}
	return "the namespaces " + strings.Join(names, ", ")
}
