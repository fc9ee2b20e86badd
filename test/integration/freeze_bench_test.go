// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
)

// BenchmarkFreeze measures the time from the API server's answer to the creation of the freeze switch until the operator
// refuses its own writes, and beside it until a plain watch of the same ConfigMap has the event. The promise is a second;
// the ratio says how much of the time is the operator's.
//
//	make test-integration PKG=./test/integration ARGS='-run ^$ -bench Freeze -benchtime 200x'
func BenchmarkFreeze(b *testing.B) {
	name := types.NamespacedName{Namespace: env.Namespace(b), Name: "freeze"}
	api, err := corev1client.NewForConfig(env.Config)
	if err != nil {
		b.Fatal(err)
	}
	changed := make(chan time.Time, 10)
	s := freeze.New(name)
	if err := s.Watch(b.Context(), api, func() { changed <- time.Now() }); err != nil {
		b.Fatal(err)
	}
	plain, err := env.Client.Watch(b.Context(), &corev1.ConfigMapList{}, client.InNamespace(name.Namespace), client.MatchingFields{metav1.ObjectNameField: name.Name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(plain.Stop)
	<-changed // the switch is known to be off
	var ours, theirs []time.Duration
	for b.Loop() {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		if err := env.Client.Create(b.Context(), configMap); err != nil {
			b.Fatal(err)
		}
		answered := time.Now()
		for event := range plain.ResultChan() {
			if event.Type == watch.Added {
				break
			}
		}
		theirs = append(theirs, time.Since(answered))
		ours = append(ours, max(0, (<-changed).Sub(answered)))
		if _, frozen := s.Frozen("shop"); !frozen {
			b.Fatal("the switch is off")
		}
		if err := env.Client.Delete(b.Context(), configMap); err != nil {
			b.Fatal(err)
		}
		<-changed
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	middle, most := ours[len(ours)/2], ours[len(ours)*99/100]
	b.ReportMetric(float64(middle)/float64(time.Millisecond), "p50-ms")
	b.ReportMetric(float64(most)/float64(time.Millisecond), "p99-ms")
	b.ReportMetric(float64(most)/float64(max(1, theirs[len(theirs)*99/100])), "p99-ratio-to-a-plain-watch")
}
