// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// The window opens when the cooldown ends. The move waits for the cooldown then: no window keeps it.
func TestAWindowThatOpensWithTheEndOfTheCooldownIsNoObstacle(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hourly, err := window.Parse(window.Spec{Schedule: "0 13 * * *", Duration: time.Minute, Directions: []window.Direction{window.ScaleUp}})
	if err != nil {
		t.Fatal(err)
	}
	policy := model.Policy{Windows: window.Windows{hourly}}
	for cooldown, want := range map[time.Duration]string{
		59 * time.Minute: v1beta1.ReasonOutsideWindow, time.Hour: v1beta1.ReasonInCooldown, 61 * time.Minute: v1beta1.ReasonInCooldown,
	} {
		policy.Cooldown = cooldown
		s := model.Situation{Decision: &model.Decision{Time: now, Reason: model.DecidedScaleUp}}
		if got := deferralOf(s, policy, move{why: model.DecidedScaleUp}, now); got.message == "" || got.waitReason != want {
			t.Errorf("cooldown %s: %+v, want %s", cooldown, got, want)
		}
	}
}
