// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Scope is what of the cluster is out of the operator's reach. It is the same for all
// scalers, and as long as the operator runs.
type Scope struct {
	// Namespaces are those that the operator watches, sorted; none means all.
	Namespaces []string
	// NodesForbidden says that all namespaces are watched, but that the operator may
	// not read nodes.
	NodesForbidden bool
}

// maxNamespacesNamed keeps the condition's message short.
const maxNamespacesNamed = 10

// condition is ClusterAccess, and whether there is one: where nothing is lost, nothing
// is said. It has no say in Ready: the scaler works all the same.
func (s Scope) condition() (c metav1.Condition, ok bool) {
	c = metav1.Condition{Type: v1beta1.ConditionClusterAccess, Status: metav1.ConditionFalse}
	switch {
	case len(s.Namespaces) > 0:
		c.Reason = v1beta1.ReasonNamespacedInstall
		c.Message = fmt.Sprintf("The operator is installed only for %s. It reads no nodes, so a size that no node can hold is "+
			"found only when it is refused; admission policies are cluster-wide, and out of its reach", s.watched())
	case s.NodesForbidden:
		c.Reason = v1beta1.ReasonNodesForbidden
		c.Message = "The operator may not list and watch nodes, so a size that no node can hold is found only when it is refused"
	default:
		return c, false
	}
	return c, true
}

func (s Scope) watched() string {
	names, more := s.Namespaces, len(s.Namespaces)-maxNamespacesNamed
	switch {
	case len(names) == 1:
		return "the namespace " + names[0]
	case more > 0:
		return fmt.Sprintf("the namespaces %s and %d more", strings.Join(names[:maxNamespacesNamed], ", "), more)
	}
	return "the namespaces " + strings.Join(names, ", ")
}
