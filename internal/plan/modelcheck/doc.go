// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package modelcheck checks the planner in every state of a small world, not in some of them. It has
// only tests.
//
// The world has one Deployment of two pods, a scaler, and up to two processes of the operator, of
// which one was deposed. The test explores all states breadth-first. In each state it tries every
// possible next event. Events are a reconcile, the write of a status, a kubelet's answer, a step of the
// Deployment controller, a delivery of a watch, an hour that passes, and disturbances. These are a crash,
// another leader, a watch that lags, a write or a reply that is lost, and an OOM kill. Further ones
// are usage that rises or falls, a silent pod and a full node. Users may edit the template, pause the
// Deployment, resize a pod, wipe a status, or recreate the Deployment.
//
// # What is checked
//
// In every state (safety):
//
//   - no request is above maxAllowed or below minAllowed, and no QoS class changes;
//   - memory is never lowered below a known peak or OOM kill, nor while usage of a pod is missing;
//   - a write changes exactly the pod or the Deployment that the operator has seen;
//   - at most one pod is being resized, and none is evicted while the other one is not ready;
//   - no pod is evicted twice for one decision, and at most one without effect;
//   - a second pod is lowered only after the first one was verified, and no lowering that was reverted
//     is repeated;
//   - Applied is never True while a pod declares another size than the kubelet applies, or has another
//     size than decided, whatever its template;
//   - a resize is withdrawn only after its kubelet has not granted it for long, or if it never will, and
//     then to what the kubelet applies;
//   - a revert is counted only if another writer has changed the value;
//   - the recorded original value is the user's.
//
// On every path without further disturbances (liveness), each step that stays possible happens at
// last. So every state must reach a state of rest, in which another reconcile changes nothing. In it
// the pods have the size that they need, unless a node, a silent pod or another writer prevents that,
// and then Applied is not True. No pod declares a decided size that its kubelet does not grant.
//
// # Why the model stands for the operator
//
// Decisions are the operator's own: plan.Next decides, package scaler reads the policy, and reads and
// writes what the status records, and package workload reads the pods and the Deployment. The rest
// is modeled as controllers/verticalscaler does it:
//
//   - A reconcile reads its cache, samples usage and counts OOM kills, saves the checkpoint, takes
//     one step, and writes the status last. Other processes, nodes and users may act between the step
//     and the status. A crash loses everything but the checkpoint and the status.
//   - A refused step leaves the decision in the status. A refused or unanswered rewrite does not. A
//     conflict writes nothing. A status is written only if the scaler is the one that was read.
//   - Resizes, evictions and rewrites carry the UID and the resource version. Here, an object is the
//     same version if all of its values are the same: the model lets more writes through than the
//     API server does.
//   - Each process remembers its own writes, and waits until its cache shows them, for a minute. A cache
//     may lag for longer, or behind the last write of a process that was deposed. Then a write of the
//     operator may be taken for a revert by another controller. This counts one revert, and is not
//     reported as a violation: before a contest stops anything, the managed fields are read.
//   - A process that was deposed sends no new write, because it can no longer renew its lease
//     (cmd/operator/app). But one reconcile may be under way: its step and its status arrive
//     late, and are planned by what was known then.
//   - The API server learns the sizes of new pods some time after the status is written, but within
//     the hour.
//
// A process remembers the resizes that it has withdrawn. The operator repeats them after a while, and
// would withdraw them again for as long as the node has no room. In the model it repeats them only if
// the node has room by then, so that there is a state of rest.
//
// Moments have one of three ages: never, fresh, or old, which is beyond every delay of the planner.
// Memory has four sizes that are further apart than the tolerance. The recommendation is the highest
// usage in the window, or one size above the last OOM kill; package recommend keeps the promises that
// this needs. A replacement takes the name of its predecessor, which is harsher than a ReplicaSet.
//
// # What is not covered
//
// The model lacks CPU, boosts, windows, step limits, quotas, LimitRanges, limits that differ from
// twice the request, and limits that the kubelet cannot lower. It also lacks PodDisruptionBudgets,
// crash loops, rollouts that get stuck, and the verification of rollouts. The order of two fresh
// moments is not known. A process sees all objects of one kind at the same moment.
//
// # The bound
//
// One disturbance may happen in every state, or two in the explorations that say so. A write or a
// reply that is lost counts as one. With FULL=1, one more may happen in five of the explorations, which
// takes minutes and some gigabytes. go test -v prints the number of states.
package modelcheck
