// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// In a tree, pods are uneven, a sidecar is only injected, and what cannot be read is named.
func TestTree(t *testing.T) {
	uneven := checkout(halfway, conditions("Applied False Resizing Pods are being resized in place"), func(e *explain.Evidence) {
		e.Deployment.Spec.Replicas, e.Deployment.Status.AvailableReplicas = ptr.To[int32](3), 2
		e.Scaler.OwnerReferences = []metav1.OwnerReference{{Kind: "ScaledDeployment", Name: "shop", Controller: ptr.To(true)}}
		e.Pods[0].Name, e.Pods[1].Name = "checkout-b", "checkout-a"
		proxy := pod(900, 900).Containers[0]
		proxy.Name = "proxy"
		e.Pods[1].Containers = append(e.Pods[1].Containers, proxy)
	})
	unread := checkout(func(e *explain.Evidence) {
		e.Deployment, e.Pods, e.Missing = nil, nil, []string{"The pods of Deployment shop/checkout: forbidden"}
	})
	for file, e := range map[string]explain.Evidence{"tree.txt": uneven, "tree-unread.txt": unread, "tree-undecided.txt": checkout(undecided)} {
		var got bytes.Buffer
		if err := explain.TreeOf(e).WriteText(&got, noon); err != nil {
			t.Fatal(err)
		}
		golden(t, file, got.String())
	}
}

func TestHistory(t *testing.T) {
	e := checkout(func(e *explain.Evidence) {
		e.Scaler.Status.History[1].Message = "strange\x1b[31m"
	})
	var got bytes.Buffer
	if err := explain.HistoryOf(e.Scaler).WriteText(&got, noon); err != nil {
		t.Fatal(err)
	}
	const want = "AGE    CAUSE       CHANGE\n120m   ScaleDown   app cpu 500m->230m\n26h    -           strange[31m\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	got.Reset()
	if err := explain.HistoryOf(checkout(undecided).Scaler).WriteText(&got, noon); err != nil || got.String() != "VerticalScaler shop/checkout has changed nothing yet.\n" {
		t.Errorf("%v: %s", err, got.String())
	}
}
