// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen is where the demo is seen: a terminal that is drawn anew again and again,
// or a stream of lines.
type screen struct {
	out   *os.File
	began time.Time
	// live says that the view is to be drawn; open that it is on.
	live, open bool
	paint      paint
	// footer ends the view.
	footer string
}

// The sequences are those that every terminal knows.
const (
	enter   = "\x1b[?1049h\x1b[?25l\x1b[?7l" // to the other screen; no cursor, no wrapping
	leave   = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home    = "\x1b[H"
	clearln = "\x1b[K"
	wipe    = "\x1b[J"
)

func newScreen(out *os.File, plain bool, began time.Time) *screen {
	terminal := term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
	return &screen{
		out: out, began: began, live: terminal && !plain,
		paint: paint{colours: terminal && os.Getenv("NO_COLOR") == ""},
	}
}

// say prints a line with the time. It is for what is said before and after the play.
func (s *screen) say(format string, args ...any) {
	s.close()
	fmt.Fprintln(s.out, stamp(time.Since(s.began))+fmt.Sprintf(format, args...))
}

// print prints lines as they are.
func (s *screen) print(lines ...string) {
	s.close()
	fmt.Fprintln(s.out, strings.Join(lines, "\n"))
}

// show draws the view, or tells what is new.
func (s *screen) show(r *record, before state, missing string) {
	if !s.live {
		for _, line := range news(before, r.last) {
			fmt.Fprintln(s.out, stamp(r.last.at)+line)
		}
		return
	}
	frame := home
	if !s.open {
		s.open = true
		frame = enter + home
	}
	lines := append(render(r, missing, s.paint), "", s.paint.dim(s.footer))
	if _, rows, err := term.GetSize(int(s.out.Fd())); err == nil && rows > 0 {
		lines = lines[:min(len(lines), rows-1)]
	}
	for _, line := range lines {
		frame += line + clearln + "\r\n"
	}
	fmt.Fprint(s.out, frame+wipe)
}

// close leaves the view. What is printed from then on stays on the terminal.
func (s *screen) close() {
	if s.open {
		s.open = false
		fmt.Fprint(s.out, leave)
	}
}

// stamp is the time in front of a line.
func stamp(at time.Duration) string { return fmt.Sprintf("[%6.1fs] ", at.Seconds()) }
