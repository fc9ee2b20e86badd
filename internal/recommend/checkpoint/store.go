// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps the history of every scaler in memory, and on the API server as far as a
// restart would lose important state.
//
// A checkpoint is written when its recommendation has changed, when an OOM kill was counted, or when the evidence in the
// status is updated. The first one is written when the first interval of CPU usage is complete, or before a change. With steady
// usage, only the evidence causes writes, a few times in eight days. A crash loses at most half of the observed time, or hours of it, and no
// recommendation. For a scaler that waits to be promoted, it loses at most a tenth of the time that its policy requires.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// version is the version of the encoding in ContainerCheckpoint.data that is written.
// Older ones may still be read: the data begins with its own.
const version = history.Version

// Store holds the histories of all scalers. It is safe for concurrent use.
type Store struct {
	// Client reads checkpoints live, not from a cache, and writes them.
	Client client.Client
	// Live reads scalers from the API server, before the checkpoint of another target is overwritten; nil
	// to trust the caller.
	Live client.Reader
	// Params are the parameters of the histories, except for the prices of CPU.
	Params history.Params

	mu      sync.Mutex
	entries map[types.NamespacedName]*entry
}

// entry is the state of one scaler. A request for its checkpoint may take long: mu is not held
// meanwhile, so that usage can be added.
type entry struct {
	requests  sync.Mutex                             // is held for a whole Load or Save, and before mu
	object    *v1beta1.VerticalScalerCheckpoint      // as last read or written, less its data once it is known to be current; nil while there is none
	saved     marks                                  // of the object; nil if unknown
	known     digest                                 // of the save that this process has read or written last; any other save is of another process, at any time: clocks differ
	unsure    digest                                 // of the last save of this process without a reply, which may be stored
	overtaken history.Histories                      // histories in memory when another process had saved, or nil
	unread    map[string]v1beta1.ContainerCheckpoint // parts that this version cannot read, by container; they are kept

	mu         sync.Mutex // guards the rest
	owner      types.UID
	deployment string
	histories  history.Histories // nil until loaded
	filling    filling
	restored   string // the scaler's RestoredAnnotation when the checkpoint was read
}

// marks are the important parts of saved histories, by container.
type marks []mark

// mark is the important part of one container's saved history.
type mark struct {
	container  string
	target     quantity.Amounts // the recommendation
	observed   time.Duration    // its evidence
	newestKill time.Time
	// evidence is the part of the recommendation's evidence that is in the history: less than all after
	// a lost history.
	evidence time.Duration
	// isCPULasting reports whether usage of CPU is in the checkpoint. The first one may be written before.
	isCPULasting bool
	startCPU     int64 // CPU need of starts
	// covered is the time for which the recommendations would have sufficed, and goal the required time; 0 for
	// a scaler that does not wait to be promoted.
	covered, goal time.Duration
}

func markOf(name string, target quantity.Amounts, observed time.Duration, container *history.Container) mark {
	return mark{
		container: name, target: target, observed: observed, newestKill: container.NewestKill(), evidence: min(observed, container.Observed()),
		isCPULasting: container.IsCPULasting(), startCPU: container.StartCPU(), covered: container.Coverage().Time, goal: container.CoverageGoal().Time,
	}
}

// ParamsOf are the parameters of the scaler's history, with the CPU prices of its profile. Charges
// of another profile fade.
func (s *Store) ParamsOf(vs *v1beta1.VerticalScaler) history.Params {
	params := s.Params
	params.Prices = profile.Of(scaler.Profile(&vs.Spec)).Prices
	return params
}

// Load makes sure that the scaler's history is in memory, reading the checkpoint
// the first time. A scaler that was retargeted or recreated starts over. Times after now, by another clock, count as now.
func (s *Store) Load(ctx context.Context, vs *v1beta1.VerticalScaler, now time.Time) error {
	e := s.entryOf(client.ObjectKeyFromObject(vs))
	e.requests.Lock()
	defer e.requests.Unlock()
	isLoaded, isRestored := e.isLoaded(vs), e.isRestored(vs)
	if isLoaded && !isRestored {
		return nil
	}
	var object v1beta1.VerticalScalerCheckpoint
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(vs), &object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the checkpoint of scaler %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner != vs.UID || e.deployment != vs.Spec.DeploymentName {
		e.overtaken = nil
	}
	if isLoaded {
		e.overtaken = e.histories
	}
	if found := digestOf(object.Spec); e.overtaken != nil && found == e.unsure {
		// Only the reply was lost: memory continues from there.
		e.histories, e.overtaken, e.object, e.known = e.overtaken, nil, &object, found
		return nil
	}
	e.restored = vs.Annotations[v1beta1.RestoredAnnotation]
	e.owner, e.deployment = vs.UID, vs.Spec.DeploymentName
	e.histories, e.object, e.saved, e.unread, e.filling, e.known = history.Histories{}, nil, nil, map[string]v1beta1.ContainerCheckpoint{}, filling{}, digest{}
	if err == nil {
		e.object = &object
		e.known = digestOf(object.Spec)
		if e.isAbout(&object) {
			e.decode(ctx, s.ParamsOf(vs), now)
			e.filling.done = object.Annotations[FilledAnnotation] != ""
		}
	}
	e.keepOvertaken(s.ParamsOf(vs))
	return nil
}

// isLoaded reports whether the scaler's history is in memory.
func (e *entry) isLoaded(vs *v1beta1.VerticalScaler) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.histories != nil && e.owner == vs.UID && e.deployment == vs.Spec.DeploymentName
}

// isRestored reports whether the checkpoint was restored since it was read.
func (e *entry) isRestored(vs *v1beta1.VerticalScaler) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	value := vs.Annotations[v1beta1.RestoredAnnotation]
	return value != "" && value != e.restored
}

// keepOvertaken copies peaks and OOM kills known only to this process into the histories that were read, and keeps
// its histories of containers that were not read.
func (e *entry) keepOvertaken(params history.Params) {
	for name, c := range e.overtaken {
		if theirs := e.histories[name]; theirs != nil {
			keepMemory(c, theirs, params)
		} else {
			e.histories[name] = c
		}
	}
	e.overtaken = nil
}

// isAbout reports whether the checkpoint is about this very scaler and its Deployment. One without an owner was restored
// from a copy: the scaler takes it over with the next save. One of a deleted scaler of the same name will soon be
// collected.
func (e *entry) isAbout(object *v1beta1.VerticalScalerCheckpoint) bool {
	owner := metav1.GetControllerOf(object)
	return (owner == nil || owner.UID == e.owner) && object.Spec.DeploymentName == e.deployment
}

// decode fills the histories from the checkpoint. A container that cannot be read, because it is damaged or a newer version has
// saved it, starts over, and its part of the checkpoint is kept. A kept part that can be read now replaces a history with less
// evidence.
func (e *entry) decode(ctx context.Context, params history.Params, now time.Time) {
	var readable []v1beta1.ContainerCheckpoint
	for _, c := range e.object.Spec.Containers {
		container, err := read(c, now)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot read the history of a container: it is kept, and the container starts over",
				"Container", c.ContainerName, "version", c.Version)
			e.unread[c.ContainerName] = c
			continue
		}
		if len(c.Unreadable) > 0 {
			kept, err := history.Decode(c.Unreadable)
			switch {
			case err != nil:
				e.unread[c.ContainerName] = c
			case kept.Observed() > container.Observed():
				kept.LimitTo(now)
				keepMemory(&container, &kept, params)
				container = kept
			}
		}
		e.histories[c.ContainerName] = &container
		readable = append(readable, c)
	}
	e.object.Spec.Containers = readable
}

// read reads one container's part of a checkpoint. A coverage that cannot be read costs only itself.
func read(c v1beta1.ContainerCheckpoint, now time.Time) (history.Container, error) {
	container, err := history.Decode(c.Data)
	if err != nil {
		return history.Container{}, err
	}
	if c.Version != int32(c.Data[0]) {
		return history.Container{}, fmt.Errorf("version %d is not %d", c.Version, c.Data[0])
	}
	_ = container.DecodeCoverage(c.Coverage)
	container.LimitTo(now)
	return container, nil
}

// With calls f with the scaler's history, and reports whether there was one in memory.
// f must not keep it.
func (s *Store) With(key types.NamespacedName, f func(history.Histories)) bool {
	s.mu.Lock()
	e := s.entries[key]
	s.mu.Unlock()
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.histories == nil {
		return false
	}
	f(e.histories)
	return true
}

// Forget drops the history of a scaler that is gone. Its checkpoint goes with it by
// its owner reference.
func (s *Store) Forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
}

// Len is the number of scalers with a history in memory.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// ErrOvertaken is true if another process has saved a history of the same scaler. It was not
// overwritten, and must be loaded before anything is decided.
var ErrOvertaken = errors.New("another process has saved the usage history meanwhile")

// IsYoung reports whether no history of the scaler was saved yet, and a checkpoint would hold little. It has no complete interval
// of CPU usage then, no OOM kill, and no need of a start.
func (s *Store) IsYoung(vs *v1beta1.VerticalScaler) bool {
	e := s.entryOf(client.ObjectKeyFromObject(vs))
	e.requests.Lock()
	defer e.requests.Unlock()
	if e.object != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.histories {
		if c.IsCPULasting() || !c.NewestKill().IsZero() || c.StartCPU() > 0 {
			return false
		}
	}
	return true
}

// Save writes the checkpoint if losing the history would lose important state. recommendations are
// the current results of the history. After ErrOvertaken, the history must be loaded again.
func (s *Store) Save(ctx context.Context, vs *v1beta1.VerticalScaler, recommendations []recommend.Container, now time.Time) error {
	e := s.entryOf(client.ObjectKeyFromObject(vs))
	e.requests.Lock()
	defer e.requests.Unlock()
	object, marks, err := e.nextSave(vs, s.ParamsOf(vs), recommendations, now)
	if object == nil || err != nil {
		return err
	}
	if err := s.write(ctx, e, object); err != nil {
		return fmt.Errorf("saving the checkpoint of scaler %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	e.settle(marks)
	return nil
}

// nextSave returns the object to write and its marks; nil if no important state would be lost.
func (e *entry) nextSave(vs *v1beta1.VerticalScaler, params history.Params, recommendations []recommend.Container, now time.Time,
) (object *v1beta1.VerticalScalerCheckpoint, marks marks, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.histories == nil || e.owner != vs.UID {
		return nil, nil, errors.New("saving a history that was never loaded")
	}
	marks = e.marks(recommendations)
	holdsPast := !e.filling.done || e.object != nil && e.object.Annotations[FilledAnnotation] != ""
	switch {
	case len(marks) == 0, holdsPast && e.saved != nil && !worthSaving(e.saved, marks, scaler.Share(e.owner)):
		return nil, nil, nil
	case holdsPast && e.saved == nil && e.object != nil && e.current(marks, now):
		e.settle(marks) // the first pass after a restart: memory equals the stored history
		return nil, nil, nil
	}
	return e.checkpoint(vs, params, now), marks, nil
}

// settle records the marks of the object. Its content is in the histories, so only the fields that
// the next write needs are kept. That write sets the owner again. Without managed fields, it keeps the existing ones.
func (e *entry) settle(marks marks) {
	e.saved = marks
	e.object.Spec.Containers, e.object.ManagedFields, e.object.OwnerReferences = nil, nil, nil
}

// current reports whether the checkpoint read at the start still holds all that the
// histories does. Time observed since then is too little to matter.
func (e *entry) current(marks marks, now time.Time) bool {
	if !e.isAbout(e.object) || metav1.GetControllerOf(e.object) == nil {
		return false
	}
	var stored []mark
	for _, c := range e.object.Spec.Containers {
		container, err := read(c, now)
		m, ok := marks.of(c.ContainerName)
		if err != nil || c.Version != version || !ok {
			continue // unreadable or older, or without a recommendation
		}
		stored = append(stored, markOf(m.container, m.target, m.observed, &container))
	}
	return !worthSaving(stored, marks, scaler.Share(e.owner))
}

func (e *entry) marks(recommendations []recommend.Container) marks {
	all := make(marks, 0, len(recommendations))
	for _, rec := range recommendations {
		if container := e.histories.Container(rec.Name); container != nil {
			all = append(all, markOf(rec.Name, rec.Target, rec.Observed, container))
		}
	}
	return all
}

// of returns the mark of a container, and whether there is one.
func (m marks) of(container string) (mark, bool) {
	for _, one := range m {
		if one.container == container {
			return one, true
		}
	}
	return mark{}, false
}

func worthSaving(saved, now marks, phase float64) bool {
	if len(saved) != len(now) {
		return true
	}
	for _, n := range now {
		s, ok := saved.of(n.container)
		if !ok || n.newestKill.After(s.newestKill) || n.isCPULasting && !s.isCPULasting || n.startCPU > s.startCPU ||
			n.target != s.target ||
			tenths(n.covered, n.goal, phase) != tenths(s.covered, n.goal, phase) ||
			n.evidence > s.evidence && (n.evidence == n.observed || recommend.IsWorthSaving(n.evidence, s.evidence, phase)) {
			return true
		}
	}
	return false
}

// tenths is the covered share of a goal. The time is saved whenever that changes: for every tenth, at each scaler's own
// time, when the goal is reached, and when it begins again. Beyond the goal, it stays.
func tenths(covered, goal time.Duration, phase float64) int {
	const parts, reached = 10, 11
	switch {
	case goal <= 0:
		return 0
	case covered >= goal:
		return reached
	}
	return int(parts*float64(covered)/float64(goal) + phase)
}

// checkpoint is the checkpoint of the histories.
func (e *entry) checkpoint(vs *v1beta1.VerticalScaler, params history.Params, now time.Time) *v1beta1.VerticalScalerCheckpoint {
	object := &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: vs.Namespace, Name: vs.Name}}
	if e.object != nil {
		object = e.object.DeepCopy()
	}
	// Collected with the scaler. The owner's deletion need not wait for it.
	object.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(),
		Kind:       "VerticalScaler",
		Name:       vs.Name,
		UID:        vs.UID,
		Controller: ptr.To(true),
	}}
	delete(object.Annotations, FilledAnnotation) // it may be of another Deployment's history
	if e.filling.done {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, FilledAnnotation, "true")
	}
	object.Spec = v1beta1.VerticalScalerCheckpointSpec{
		DeploymentName: e.deployment,
		SaveTime:       metav1.NewTime(now.Truncate(time.Second)),
	}
	for _, name := range slices.Sorted(maps.Keys(e.histories)) {
		part, container := e.unread[name], e.histories.Container(name).Closed(params)
		if len(part.Unreadable) == 0 {
			part.Unreadable = part.Data
		}
		part.ContainerName, part.Version, part.Data, part.Coverage = name, version, container.Encode(), container.EncodeCoverage()
		object.Spec.Containers = append(object.Spec.Containers, part)
	}
	for _, name := range slices.Sorted(maps.Keys(e.unread)) {
		if e.histories[name] == nil {
			object.Spec.Containers = append(object.Spec.Containers, e.unread[name])
		}
	}
	object.Spec.Containers = object.Spec.Containers[:min(len(object.Spec.Containers), history.MaxContainers)]
	return object
}

// write writes the checkpoint.
func (s *Store) write(ctx context.Context, e *entry, object *v1beta1.VerticalScalerCheckpoint) error {
	if e.object != nil && !e.isAbout(e.object) {
		if err := s.confirm(ctx, e, object); err != nil {
			return err
		}
	}
	err := s.put(ctx, e, object)
	if isOutdated(err) {
		if err := s.meet(ctx, e, object); err != nil {
			return err
		}
		err = s.put(ctx, e, object)
	}
	if err != nil {
		return err
	}
	e.object = object
	return nil
}

// isOutdated reports whether a write was refused because the checkpoint has been changed, removed or
// made since it was read.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// meet reads the current checkpoint, so that it can be overwritten. A save of another process is not
// overwritten: the history in memory is dropped, and the next Load reads the save. Load also
// recognizes a save of this process whose reply was lost.
func (s *Store) meet(ctx context.Context, e *entry, object *v1beta1.VerticalScalerCheckpoint) error {
	var live v1beta1.VerticalScalerCheckpoint
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), &live)
	switch {
	case apierrors.IsNotFound(err):
		object.ResourceVersion, object.UID = "", ""
		e.object = nil
		return nil
	case err != nil:
		return fmt.Errorf("reading what has been saved instead: %w", err)
	case e.isAbout(&live) && digestOf(live.Spec) != e.known:
		e.object, e.saved = nil, nil
		e.overtaken = e.drop()
		return ErrOvertaken
	case !e.isAbout(&live):
		if err := s.confirm(ctx, e, object); err != nil {
			return err
		}
	}
	object.ResourceVersion, object.UID = live.ResourceVersion, live.UID
	e.object = &live
	return nil
}

// confirm is an error if the scaler has another target than this process knows, or is another object of
// the same name. The caller's cache is old then, and the checkpoint of the other target is newer than the history.
func (s *Store) confirm(ctx context.Context, e *entry, object *v1beta1.VerticalScalerCheckpoint) error {
	if s.Live == nil {
		return nil
	}
	// The operator may list scalers, not get them.
	var scalers v1beta1.VerticalScalerList
	err := s.Live.List(ctx, &scalers, client.InNamespace(object.Namespace), client.MatchingFields{metav1.ObjectNameField: object.Name})
	isKnown := func(vs v1beta1.VerticalScaler) bool { return e.isLoaded(&vs) }
	switch {
	case err == nil && !slices.ContainsFunc(scalers.Items, isKnown):
		e.object, e.saved = nil, nil
		e.drop()
		return ErrOvertaken
	case err != nil:
		return fmt.Errorf("reading the scaler before the checkpoint of another target is overwritten: %w", err)
	}
	return nil
}

// drop removes the histories from memory, and returns them.
func (e *entry) drop() history.Histories {
	e.mu.Lock()
	defer e.mu.Unlock()
	dropped := e.histories
	e.histories = nil
	return dropped
}

// put writes the checkpoint, and records the stored object.
func (s *Store) put(ctx context.Context, e *entry, object *v1beta1.VerticalScalerCheckpoint) error {
	write := func() error { return s.Client.Update(ctx, object) }
	if object.ResourceVersion == "" {
		write = func() error { return s.Client.Create(ctx, object) }
	}
	sent := digestOf(object.Spec)
	err := write()
	switch {
	case err == nil:
		e.known = digestOf(object.Spec)
	case !isOutdated(err):
		e.unsure = sent
	}
	return err
}

// digest identifies a save by its content.
type digest [sha256.Size]byte

// digestOf is the digest of a save. Labels and annotations are not part of it: a user may set them.
func digestOf(spec v1beta1.VerticalScalerCheckpointSpec) digest {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err) // a struct of strings, times and bytes
	}
	return sha256.Sum256(data)
}

func (s *Store) entryOf(key types.NamespacedName) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[types.NamespacedName]*entry{}
	}
	e := s.entries[key]
	if e == nil {
		e = &entry{}
		s.entries[key] = e
	}
	return e
}
