// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// raisedFor is the time for which a raised template is a floor: a day of usage shows the need with the new size.
const raisedFor = 24 * time.Hour

// template has the users' values for a resource in the pod template. Amounts of 0 are not set, or not known yet.
type template struct {
	request, limit int64
	// left is the observed time until a raised template stops being a floor.
	left time.Duration
}

// NoteTemplate takes the request and limit of the pod template into account, as users have set them. If a user raises one
// of them, the request is a floor until a day has been observed, or until it is lowered. The day begins when no pods of an
// older template are left. Memory is raised even if a climb has ended.
func (c *Container) NoteTemplate(requests, limits quantity.Amounts, hasOldPods bool) {
	c.templates[0].note(requests.CPUMillis, limits.CPUMillis, hasOldPods)
	if c.templates[1].note(requests.MemoryBytes, limits.MemoryBytes, hasOldPods) {
		c.ForgetClimb()
	}
}

// note reports whether a user has raised the request or the limit.
func (t *template) note(request, limit int64, hasOldPods bool) (isRaised bool) {
	isRaised = t.request > 0 && request > t.request || t.limit > 0 && limit > t.limit
	switch {
	case isRaised, hasOldPods && t.left > 0:
		t.left = raisedFor
	case request < t.request, limit < t.limit:
		t.left = 0
	}
	t.request, t.limit = request, limit
	return isRaised
}

func (t *template) advance(step time.Duration) { t.left = max(t.left-step, 0) }

func (t *template) floor() int64 {
	if t.left == 0 {
		return 0
	}
	return cmp.Or(t.request, t.limit)
}

// TemplateFloor has the requests of a template that a user has raised, while they are a floor.
func (c *Container) TemplateFloor() quantity.Amounts {
	return quantity.Amounts{CPUMillis: c.templates[0].floor(), MemoryBytes: c.templates[1].floor()}
}
