// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// writer is a writer that hands on what it is given.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// shop is a source of two scalers. Reads may fail.
type shop struct {
	at     time.Time
	failed error
	shift  int // of the gaps
}

func (s *shop) Scaler(_ context.Context, name types.NamespacedName) (snapshot.Scaler, error) {
	if s.failed != nil {
		return snapshot.Scaler{}, s.failed
	}
	row := explain.Row{Namespace: name.Namespace, Name: name.Name, Deployment: name.Name, State: explain.State{Reason: v1beta1.ReasonApplied, Ends: explain.Fine}}
	return snapshot.Scaler{At: s.at, Explanation: explain.Explanation{Row: row, History: slices.Repeat([]v1beta1.HistoryEntry{{Message: "ScaleDown"}}, 40)}}, nil
}

func (s *shop) Scalers(context.Context, string) (snapshot.Table, error) {
	if s.failed != nil {
		return snapshot.Table{}, s.failed
	}
	f := snapshot.Table{At: s.at}
	for i := range 200 {
		r := snapshot.Row{Row: explain.Row{Namespace: "shop", Name: fmt.Sprintf("svc-%03d", i), State: explain.State{Reason: v1beta1.ReasonApplied, Ends: explain.Fine}}}
		r.CPU = snapshot.Resource{Resource: "cpu", HasTarget: true, Over: int64((i + s.shift) % 200), Request: snapshot.Spread{Pods: 1, Total: 1000}}
		f.Rows = append(f.Rows, r)
	}
	return f, nil
}

// pressed is the view after keys, with what they have read.
func pressed(t *testing.T, v view, keys ...string) view {
	t.Helper()
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown, "home": tea.KeyHome}
	for _, key := range keys {
		press := tea.KeyPressMsg{Code: codes[key]}
		if codes[key] == 0 {
			press = tea.KeyPressMsg{Code: rune(key[0]), Text: key}
		}
		next, cmd := v.Update(press)
		v = next.(view)
		if cmd != nil {
			next, _ = v.Update(cmd())
			v = next.(view)
		}
	}
	return v
}

// openedView has read a fleet on a terminal of 80 by 24.
func openedView(t *testing.T, source *shop) view {
	t.Helper()
	v := view{ctx: t.Context(), source: source, order: snapshot.ByGap}
	next, _ := v.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	next, _ = next.(view).Update(v.Init()())
	return next.(view)
}

func textOf(v view) string { return ansi.Strip(v.View().Content) }

func TestAScalerIsOpenedFromTheFleet(t *testing.T) {
	source := &shop{at: time.Unix(1767225600, 0)}
	v := openedView(t, source)
	if text := textOf(v); !strings.Contains(text, "200 scalers") || strings.Index(text, "svc-199") > strings.Index(text, "svc-198") || strings.Count(text, "\n") != 23 {
		t.Errorf("the largest gap is first, on 24 lines:\n%s", text)
	}
	v = pressed(t, v, "down", "down", "down", "up", "enter")
	if text := textOf(v); !strings.HasPrefix(text, "shop/svc-197") || !strings.Contains(text, "Esc: back") {
		t.Errorf("the third is opened:\n%s", text)
	}
	before := textOf(v)
	if v = pressed(t, v, "end"); !strings.Contains(textOf(v), "ScaleDown") || textOf(v) == before || strings.Count(textOf(v), "\n") != 23 {
		t.Errorf("the end is not shown:\n%s", textOf(v))
	}
	if v = pressed(t, v, "home"); textOf(v) != before {
		t.Errorf("the beginning is not shown:\n%s", textOf(v))
	}
	if v = pressed(t, v, "esc"); !strings.Contains(textOf(v), "200 scalers") || v.selected().Name != "svc-197" {
		t.Errorf("back, with the same scaler chosen:\n%s", textOf(v))
	}
	source.shift = 50
	next, _ := v.Update(v.read(t.Context()))
	if v = next.(view); v.selected().Name != "svc-197" || !strings.Contains(textOf(v), "svc-197") {
		t.Errorf("the scaler that was chosen moves, and the choice does not follow:\n%s", textOf(v))
	}
	v = pressed(t, v, "s", "s", "s")
	if v.order != snapshot.ByName || v.selected().Name != "svc-197" || !strings.Contains(textOf(v), "svc-197") {
		t.Errorf("the order changes, and the choice does not: %s\n%s", v.order, textOf(v))
	}
	if v = pressed(t, v, "end"); v.selected().Name != "svc-199" || !strings.Contains(textOf(v), "svc-199") {
		t.Errorf("the last is chosen and shown:\n%s", textOf(v))
	}
}

// The view keeps the last data and shows its age.
func TestALostConnectionIsShown(t *testing.T) {
	source := &shop{at: time.Unix(1767225600, 0)}
	v := openedView(t, source)
	source.failed = errors.New("connection refused")
	next, cmd := v.Update(tick{at: source.at.Add(42 * time.Second)})
	next, _ = next.(view).Update(cmd())
	v = next.(view)
	if text := textOf(v); !strings.Contains(text, "Not read for 42s: connection refused") || !strings.Contains(text, "svc-199") || strings.Count(text, "\n") != 23 {
		t.Errorf("%s", text)
	}
	source.failed, source.at = nil, source.at.Add(time.Minute)
	next, cmd = v.Update(tick{at: source.at})
	next, _ = next.(view).Update(cmd())
	if text := textOf(next.(view)); strings.Contains(text, "Not read") {
		t.Errorf("it is read again:\n%s", text)
	}

	never := view{ctx: t.Context(), source: &shop{failed: errors.New("no route")}, width: 80, height: 24}
	next, _ = never.Update(never.Init()())
	if text := textOf(next.(view)); !strings.Contains(text, "Cannot be read: no route") {
		t.Errorf("%s", text)
	}
}

// There is always one read, or one wait for the next.
func TestOldAnswersAreLeftOut(t *testing.T) {
	v := openedView(t, &shop{at: time.Unix(1767225600, 0)})
	late, old := v.read(t.Context()), tick{shown: v.shown}
	v = pressed(t, v, "enter")
	for _, msg := range []tea.Msg{late, old} {
		next, cmd := v.Update(msg)
		if cmd != nil || !strings.HasPrefix(textOf(next.(view)), "shop/svc-199") {
			t.Errorf("%T of the fleet counts for a scaler", msg)
		}
	}
}

// The program ends at q, and leaves the alternate screen.
func TestTheProgramEnds(t *testing.T) {
	in, keys := io.Pipe()
	seen := make(chan struct{})
	var all strings.Builder
	o := &topOptions{environ: []string{"TERM=xterm-256color"}, IOStreams: genericiooptions.IOStreams{In: in, Out: writer(func(p []byte) {
		before := all.Len()
		all.Write(p)
		if before < 20 && all.Len() >= 20 {
			close(seen)
		}
	})}}
	done := make(chan error)
	go func() {
		done <- o.show(t.Context(), view{source: &shop{at: time.Unix(1767225600, 0)}, order: snapshot.ByGap, width: 80, height: 24})
	}()
	<-seen
	if _, err := keys.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, <-done)
	if text := all.String(); !strings.Contains(text, "\x1b[?1049h") || !strings.Contains(text, "\x1b[?1049l") {
		t.Errorf("%q", text)
	}
}

// Colors are left out on request, and the text says the same.
func TestColors(t *testing.T) {
	v := openedView(t, &shop{at: time.Unix(1767225600, 0)})
	content := v.View().Content
	if !strings.Contains(content, "\x1b[") {
		t.Error("there are no colors")
	}
	for _, environ := range [][]string{{"NO_COLOR=1"}, {"TERM=dumb"}} {
		var b strings.Builder
		o := &topOptions{environ: environ, IOStreams: genericiooptions.IOStreams{Out: &b}}
		if err := o.print(t.Context(), view{source: &shop{}, order: snapshot.ByGap}); err != nil || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%v: %v: %q", environ, err, b.String())
		}
	}
}
