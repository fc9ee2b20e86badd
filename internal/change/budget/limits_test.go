// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheLimitGrowsWithTheFleet(t *testing.T) {
	b := New(Limits{Changes: 300, PerNamespace: 60, PodPercent: 5, Window: time.Minute})
	pods := func(namespace, name string, n, all, own int) {
		t.Helper()
		b.SetPods(named(namespace, name), n)
		if got := b.Limit(); got != all {
			t.Errorf("the limit is %d, want %d", got, all)
		}
		if got := b.limitOf(namespace); got != own {
			t.Errorf("the limit of namespace %s is %d, want %d", namespace, got, own)
		}
	}
	pods("a", "x", 1200, 300, 60)
	pods("a", "y", 1200, 300, 120)
	pods("b", "x", 3619, 300, 180)
	pods("b", "x", 3620, 301, 181)
	pods("c", "x", 10, 301, 60)
	pods("b", "x", 0, 300, 60)
	pods("a", "y", 0, 300, 60)
	pods("a", "x", 0, 300, 60)
	pods("c", "x", -1, 300, 60)
	if n := len(b.fleet.pods) + len(b.fleet.namespaces); n > 0 || b.fleet.all != 0 {
		t.Errorf("remaining state: %+v", b.fleet)
	}
}

// A namespace that is full has room as soon as its fleet has grown.
func TestALimitThatGrowsAppliesToThoseThatWait(t *testing.T) {
	b := New(Limits{Changes: 100, PerNamespace: 1, PodPercent: 10, Window: time.Minute})
	asks(t, b, at(0), named("a", "x"), Want{}, true)
	asks(t, b, at(0), named("a", "y"), Want{}, false)
	b.SetPods(named("a", "y"), 20)
	if wake, _ := b.Next(at(0)); len(wake) != 1 || wake[0].Name != "y" {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(0), named("a", "y"), Want{}, true)
}

// Others have used up all slots. The emergencies of one namespace leave room for those of another
// one, however many they are, and for those of a third.
func TestOneNamespaceCannotUseUpTheReserve(t *testing.T) {
	b := minute(100, 100)
	spend(t, b, at(0), 100)
	emergencies := func(namespace string, n int) (granted int) {
		for i := range n {
			key := named(namespace, fmt.Sprint(i))
			if ok, _ := b.Ask(at(1), key, Want{Class: Emergency}); ok {
				granted++
				b.Done(at(1), key)
			}
		}
		return granted
	}
	asks(t, b, at(1), named("urgent", "x"), Want{Class: Urgent, Benefit: 100}, false)
	for _, c := range []struct {
		namespace string
		granted   int
	}{{"noisy", 10}, {"second", 5}, {"noisy", 0}, {"third", 3}, {"fourth", 1}, {"fifth", 1}, {"sixth", 0}} {
		if got := emergencies(c.namespace, 20); got != c.granted {
			t.Errorf("%d emergencies of namespace %s are granted, want %d", got, c.namespace, c.granted)
		}
	}
}

// Emergencies that wait are requeued as soon as their namespace may use the reserve again, even if
// all other slots are in use.
func TestEmergenciesAreRequeuedForTheReserve(t *testing.T) {
	b := minute(10, 10)
	for i := range 10 {
		asks(t, b, at(0), named("busy", fmt.Sprint(i)), Want{}, true) // and does not end
	}
	first, second := named("a", "first"), named("a", "second")
	asks(t, b, at(0), first, Want{Class: Emergency}, true)
	b.Done(at(0), first)
	asks(t, b, at(1), second, Want{Class: Emergency}, false)
	if wake, next := b.Next(at(59)); len(wake) > 0 || !next.Equal(at(60)) {
		t.Errorf("requeued: %v, next at %s", wake, next.Sub(noon))
	}
	if wake, _ := b.Next(at(60)); len(wake) != 1 || wake[0] != second {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(60), named("b", "other"), Want{Class: Urgent}, false)
	asks(t, b, at(60), second, Want{Class: Emergency}, true)
	b.Return(second)
	asks(t, b, at(60), second, Want{Class: Emergency}, true)
}

// An emergency that has become something else while it was requeued has no right to the reserve.
func TestTheReserveIsForEmergenciesOnly(t *testing.T) {
	b := minute(5, 5)
	for i := range 5 {
		asks(t, b, at(0), named("busy", fmt.Sprint(i)), Want{}, true) // and does not end
	}
	first, second := named("a", "first"), named("b", "second")
	asks(t, b, at(0), first, Want{Class: Emergency}, true)
	b.Done(at(0), first)
	asks(t, b, at(1), second, Want{Class: Emergency}, false)
	if wake, _ := b.Next(at(60)); len(wake) != 1 {
		t.Fatalf("requeued: %v", wake)
	}
	asks(t, b, at(60), second, Want{Class: Urgent}, false)
	third := types.NamespacedName{Namespace: "c", Name: "third"}
	asks(t, b, at(60), third, Want{Class: Emergency}, true)
}

func TestTheDelayIsThatOfTheLastScalers(t *testing.T) {
	var d delay
	if d.patience() != time.Second || d.ahead != 0 {
		t.Errorf("nothing is measured: patience %s, ahead %s", d.patience(), d.ahead)
	}
	for range 50 {
		d.measure(100 * time.Millisecond)
	}
	if p := d.patience(); p != 1100*time.Millisecond || d.ahead != 0 {
		t.Errorf("all take 0.1 s: patience %s, ahead %s", p, d.ahead)
	}
	for i := range 200 {
		d.measure(time.Duration(i%5) * 10 * time.Second)
	}
	if p := d.patience(); p < 40*time.Second || p > 90*time.Second {
		t.Errorf("they take 0 to 40 s: patience %s", p)
	}
	if a := d.ahead; a < 30*time.Second || a > 90*time.Second {
		t.Errorf("they take 0 to 40 s: ahead %s", a)
	}
	for range 50 {
		d.measure(100 * time.Millisecond)
	}
	if d.ahead != 0 {
		t.Errorf("all take 0.1 s again: ahead %s", d.ahead)
	}
	d.measure(-time.Hour) // clocks of concurrent callers
	if d.mean < 0 {
		t.Errorf("the mean is %s", d.mean)
	}
}
