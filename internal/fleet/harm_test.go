// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// promotedAtNoon is the promotion of the scalers of these tests. Like a time read from a status, it is not in UTC.
var promotedAtNoon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.FixedZone("CET", 3600))

func after(d time.Duration) metav1.Time { return metav1.NewTime(promotedAtNoon.Add(d).UTC()) }

// withHistory has entries with ages after the promotion, newest first as in a status.
func withHistory(entries ...v1beta1.HistoryEntry) v1beta1.VerticalScalerStatus {
	s := v1beta1.VerticalScalerStatus{History: entries}
	if len(entries) > 0 {
		s.Decision = &v1beta1.Decision{Time: entries[0].Time, Reason: decisionsOf(&s)[len(entries)-1].reason}
	}
	return s
}

func entry(at time.Duration, message string) v1beta1.HistoryEntry {
	return v1beta1.HistoryEntry{Time: after(at), Message: message}
}

func TestHarmIsARevertOrAnAnsweredOOMKillWhileTheScalerIsVerified(t *testing.T) {
	const (
		lowered  = "ScaleDown: app cpu 500m->310m, memory 512Mi->256Mi; log memory 64Mi->48Mi"
		killed   = "OOMKill: app memory 256Mi->480Mi"
		restored = "Reverted: app cpu 310m->500m (2 of 2 changed pods restarted, 0 of 4 others)"
		adopted  = "Adopted: app cpu 500m, memory 512Mi"
	)
	many := make([]v1beta1.HistoryEntry, 0, historyLength)
	for i := range historyLength - 1 {
		many = append(many, entry(time.Hour-time.Duration(i)*time.Minute, "LowerBound: app cpu 310m->500m"))
	}
	many = append(many, entry(30*time.Minute, killed))
	withReverted := func(s v1beta1.VerticalScalerStatus, at ...time.Duration) v1beta1.VerticalScalerStatus {
		for _, d := range at {
			s.RevertedChanges = append(s.RevertedChanges, v1beta1.RevertedChange{ContainerName: "app", Resource: "cpu", Time: after(d)})
		}
		return s
	}
	for name, c := range map[string]struct {
		status v1beta1.VerticalScalerStatus
		want   time.Duration // 0 without harm
	}{
		"nothing has happened":               {v1beta1.VerticalScalerStatus{}, 0},
		"a change that went well":            {withHistory(entry(time.Hour, lowered)), 0},
		"an OOM kill after a change":         {withHistory(entry(3*time.Hour, killed), entry(time.Hour, lowered)), 3 * time.Hour},
		"the first of two OOM kills":         {withHistory(entry(9*time.Hour, killed), entry(3*time.Hour, killed), entry(time.Hour, lowered)), 3 * time.Hour},
		"a change after the OOM kill":        {withHistory(entry(9*time.Hour, lowered), entry(3*time.Hour, killed), entry(time.Hour, lowered)), 3 * time.Hour},
		"a revert":                           {withReverted(withHistory(entry(2*time.Hour, restored), entry(time.Hour, lowered)), 2*time.Hour), 2 * time.Hour},
		"a revert that an OOM kill outranks": {withReverted(withHistory(entry(2*time.Hour, killed), entry(time.Hour, lowered)), 2*time.Hour), 2 * time.Hour},
		"a revert that is no longer listed":  {withHistory(entry(5*time.Hour, lowered), entry(2*time.Hour, restored), entry(time.Hour, lowered)), 2 * time.Hour},
		"a revert whose history is lost":     {withReverted(v1beta1.VerticalScalerStatus{}, 7*time.Hour, 2*time.Hour), 2 * time.Hour},
		"an OOM kill without a history": {
			v1beta1.VerticalScalerStatus{Decision: &v1beta1.Decision{Time: after(time.Hour), Reason: "OOMKill"}}, time.Hour,
		},
		"an OOM kill before any change":      {withHistory(entry(time.Minute, killed)), 0},
		"another one after it":               {withHistory(entry(time.Hour, "OOMKill: app memory 480Mi->900Mi"), entry(time.Minute, killed)), 0},
		"an OOM kill after a raise":          {withHistory(entry(2*time.Hour, "OOMKill: app memory 524Mi->1048Mi"), entry(time.Hour, "LowerBound: app memory 512Mi->524Mi")), 0},
		"an OOM kill after less CPU":         {withHistory(entry(2*time.Hour, "OOMKill: app memory 512Mi->1Gi"), entry(time.Hour, "ScaleDown: app cpu 500m->310m")), 0},
		"an OOM kill of another container":   {withHistory(entry(2*time.Hour, "OOMKill: db memory 1Gi->2Gi"), entry(time.Hour, lowered)), 0},
		"an OOM kill after a part of it":     {withHistory(entry(3*time.Hour, "OOMKill: app memory 300Mi->600Mi"), entry(2*time.Hour, "LowerBound: app memory 256Mi->300Mi"), entry(time.Hour, lowered)), 3 * time.Hour},
		"an OOM kill while nothing changed":  {withHistory(entry(time.Hour, "OOMKill: app memory 512Mi->1Gi"), entry(time.Minute, adopted)), 0},
		"an OOM kill with a full history":    {withHistory(many...), 30 * time.Minute},
		"an OOM kill after an early change":  {withHistory(entry(time.Hour, killed), entry(-30*24*time.Hour, lowered)), time.Hour},
		"harm before the promotion":          {withReverted(withHistory(entry(-time.Hour, killed), entry(-2*time.Hour, lowered)), -time.Minute), 0},
		"harm at the time of the promotion":  {withReverted(withHistory(entry(0, killed), entry(-2*time.Hour, lowered)), 0), 0},
		"harm before it and after it":        {withReverted(v1beta1.VerticalScalerStatus{}, 5*time.Hour, -time.Hour), 5 * time.Hour},
		"harm at the end of verification":    {withHistory(entry(24*time.Hour, killed), entry(time.Hour, lowered)), 24 * time.Hour},
		"harm after verification":            {withReverted(withHistory(entry(25*time.Hour, killed), entry(time.Hour, lowered)), 30*time.Hour), 0},
		"a reason that a later version adds": {withHistory(entry(2*time.Hour, "OOMKillSoon: app"), entry(time.Hour, lowered)), 0},
		"a message without a reason":         {withHistory(entry(2*time.Hour, "OOMKill"), entry(time.Hour, "a user edited this")), 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			harm, ok := HarmOf(&c.status, promotedAtNoon, 24*time.Hour)
			if ok != (c.want != 0) || ok && !harm.At.Equal(promotedAtNoon.Add(c.want)) {
				t.Errorf("harm %v, %v, want %v after the promotion", harm, ok, c.want)
			}
		})
	}
}

func TestADecisionThatWasDatedBackIsNoSecondOne(t *testing.T) {
	s := withHistory(entry(time.Hour, "OOMKill: app memory 256Mi->480Mi"))
	s.Decision.Time = after(50 * time.Minute) // The clock was set back.
	if harm, ok := HarmOf(&s, promotedAtNoon, 24*time.Hour); ok {
		t.Errorf("harm %v, although nothing had been changed before", harm)
	}
}

func TestNoHarmWithoutAPromotion(t *testing.T) {
	s := withHistory(entry(3*time.Hour, "OOMKill: app memory 256Mi->480Mi"), entry(time.Hour, "ScaleDown: app memory 512Mi->256Mi"))
	for _, c := range []struct {
		status   *v1beta1.VerticalScalerStatus
		promoted time.Time
	}{{&s, time.Time{}}, {nil, promotedAtNoon}} {
		if harm, ok := HarmOf(c.status, c.promoted, 24*time.Hour); ok {
			t.Errorf("harm %v", harm)
		}
	}
	before := fmt.Sprint(s)
	if HarmOf(&s, promotedAtNoon, 24*time.Hour); fmt.Sprint(s) != before {
		t.Error("the status was modified")
	}
}

func TestHarmIsNamed(t *testing.T) {
	lowered, killed := entry(time.Hour, "ScaleDown: app cpu 500m->310m, memory 512Mi->256Mi"), entry(2*time.Hour, "OOMKill: app memory 256Mi->480Mi")
	reverted := v1beta1.VerticalScalerStatus{RevertedChanges: []v1beta1.RevertedChange{{ContainerName: "app", Resource: "cpu", Time: after(time.Hour)}}}
	for want, status := range map[string]v1beta1.VerticalScalerStatus{
		"app was OOM-killed at 256Mi, lowered from 512Mi": withHistory(killed, lowered),
		"a container was OOM-killed":                      withHistory(entry(2*time.Hour, "OOMKill"), lowered),
		"a change of app cpu was reverted":                reverted,
	} {
		if harm, _ := HarmOf(&status, promotedAtNoon, 24*time.Hour); harm.Words != want {
			t.Errorf("%q, want %q", harm.Words, want)
		}
	}
}
