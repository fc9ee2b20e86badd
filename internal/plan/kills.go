// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// NoteTemplate records in the histories what users have set in the pod template.
func NoteTemplate(histories history.Histories, s Situation) {
	for _, c := range s.Deployment.Containers {
		if h := histories.Container(c.Name); h != nil && !c.Unreadable {
			written := row.Written(s, c)
			h.NoteTemplate(written.Requests, written.Limits, s.OldPods() > 0)
		}
	}
}

// NoteStarts gives containers without a startupBoost what their starts were seen to need: as a boost, or as the least CPU of a
// container whose limit is its request. Without a CPU limit that changes with the request, no start was throttled by the request.
func NoteStarts(policy Policy, s Situation, histories history.Histories) {
	for _, c := range row.Of(s, policy).Containers {
		p, h := c.Policy, histories.Container(c.Name)
		switch {
		case h == nil, p.Boost != nil, !p.CPU, p.Limits == LimitsStay, c.Limits.CPUMillis == 0, h.StartCPU() == 0:
			continue
		case c.IsGuaranteed:
			p.StartCPU = h.StartCPU()
		default:
			p.Boost = &Boost{LeastMillis: h.StartCPU()}
		}
		policy.Containers[c.Name] = p
	}
}

// KillOf is an OOM kill of a pod, with what a history must know to learn from it.
func KillOf(s Situation, policy Policy, pod workload.Pod, kill workload.OOMKill) history.Kill {
	out := history.Kill{
		At: kill.At, HitBytes: kill.HitBytes, Pod: string(pod.UID), Termination: kill.Termination, Name: pod.Name, Pods: s.AlivePods(),
	}
	running, _ := pod.Container(kill.Container)
	out.Request = running.Requests.MemoryBytes
	c := row.Of(s, policy).Find(kill.Container)
	out.TemplateRequest = c.WrittenRequest(Memory)
	out.TemplateSize = cmp.Or(c.Written.Limits.MemoryBytes, c.Written.Requests.MemoryBytes)
	if most := c.Of(Memory).MostRaised; most < model.Any {
		out.MostBytes = most
	}
	return out
}
