// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/top/render"
)

// readWithin is how long a read may take.
const readWithin = 30 * time.Second

// Init starts to read.
func (v view) Init() tea.Cmd { return v.readNow() }

// readNow reads what is shown.
func (v view) readNow() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(v.ctx, readWithin)
		defer cancel()
		return v.read(ctx)
	}
}

// askPrometheus reads the past once.
func (v view) askPrometheus() tea.Cmd {
	return func() tea.Msg {
		past, err := v.past(v.ctx, v.scaler)
		return filling{shown: v.shown, past: past, err: err}
	}
}

// wait waits until it is time to read again.
func (v view) wait() tea.Cmd {
	every := v.interval
	if every == 0 && v.isFleet() {
		every = fleetInterval
	} else if every == 0 {
		every = scalerInterval
	}
	return tea.Tick(every, func(at time.Time) tea.Msg { return tick{shown: v.shown, at: at} })
}

// Update takes a message. Messages about what is no longer shown are left out, so that
// there is always one read, or one wait for the next.
func (v view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return v.press(msg.String())
	case reading:
		if msg.shown != v.shown {
			return v, nil
		}
		v.take(msg)
		if v.isRead && !v.isFilled && v.past != nil && !v.isFleet() {
			v.isFilled = true
			return v, tea.Batch(v.wait(), v.askPrometheus())
		}
		return v, v.wait()
	case filling:
		if msg.shown != v.shown {
			return v, nil
		}
		v.fill(msg.past)
		v.notice = cmp.Or(v.notice, msg.past.Missing)
		if msg.err != nil {
			v.notice = msg.err.Error()
		}
	case tick:
		if msg.shown != v.shown {
			return v, nil
		}
		v.now = msg.at
		return v, v.readNow()
	}
	return v, nil
}

// press is a key.
func (v view) press(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c":
		return v, tea.Quit
	case "esc", "left", "h", "backspace":
		if v.canGoUp && !v.isFleet() {
			v.close()
			return v, v.readNow()
		}
	case "enter", "right", "l":
		if name := v.selected(); v.isFleet() && name.Name != "" {
			v.open(name)
			v.canGoUp = true
			return v, v.readNow()
		}
	case "s":
		if v.isFleet() {
			selected := v.selected()
			v.order = snapshot.Orders[(slices.Index(snapshot.Orders, v.order)+1)%len(snapshot.Orders)]
			v.fleet.Rows = slices.Clone(v.fleet.Rows)
			v.fleet.Sort(v.order)
			v.choose(selected)
		}
	case "up", "k":
		v.move(-1)
	case "down", "j":
		v.move(1)
	case "pgup":
		v.move(-v.page())
	case "pgdown", "space":
		v.move(v.page())
	case "home", "g":
		v.move(-len(v.lines()))
	case "end", "G":
		v.move(len(v.lines()))
	}
	return v, nil
}

// page is the number of lines of the view that are visible.
func (v view) page() int { return max(1, v.height-1) }

// move moves the cursor of a fleet, or scrolls a scaler.
func (v *view) move(by int) {
	if v.isFleet() {
		v.cursor = max(0, min(v.cursor+by, len(v.fleet.Rows)-1))
		return
	}
	v.offset = max(0, min(v.offset+by, len(v.lines())-v.page()))
}

// View draws what fits on the screen.
func (v view) View() tea.View {
	out := tea.View{AltScreen: true, WindowTitle: "kubectl vscaler top"}
	if v.width == 0 {
		return out // the size is not known yet
	}
	var lines []string
	if v.isRead {
		lines = v.visible()
	}
	out.Content = strings.Join(append(lines, render.Faint(render.Cut(v.footer(), v.width))), "\n")
	if v.failed != nil || v.notice != "" {
		out.Content += "\n" + render.Bad(render.Cut(v.trouble(), v.width))
	}
	return out
}

// visible are the lines that fit on the screen: those from the offset of a scaler, and
// those around the cursor of a fleet.
func (v view) visible() []string {
	lines, room := v.lines(), v.page()
	if v.failed != nil || v.notice != "" {
		room = max(1, room-1)
	}
	offset := v.offset
	if v.isFleet() {
		offset = len(lines) - len(v.fleet.Rows) + v.cursor + 1 - room
	}
	offset = max(0, min(offset, len(lines)-room))
	return lines[offset:min(len(lines), offset+room)]
}

// trouble describes why the view is old or incomplete.
func (v view) trouble() string {
	switch {
	case v.failed == nil:
		return v.notice
	case !v.isRead || v.now.IsZero():
		return fmt.Sprintf("Cannot be read: %v", v.failed)
	}
	return fmt.Sprintf("Not read for %s: %v", v.now.Sub(v.lastRead).Round(time.Second), v.failed)
}

func (v view) footer() string {
	switch {
	case !v.isRead && v.failed == nil:
		return "Reading. q: quit"
	case v.isFleet():
		return fmt.Sprintf("q: quit  up, down: choose  Enter: open  s: order (%s)", v.order)
	case v.canGoUp:
		return "q: quit  up, down: scroll  Esc: back"
	}
	return "q: quit  up, down: scroll"
}
