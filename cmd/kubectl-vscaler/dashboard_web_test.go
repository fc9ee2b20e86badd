// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/dashboard/pages"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// webTimeout is longer than a test needs on a busy machine.
const webTimeout = 3 * time.Minute

// The screenshots are written to the folder that this variable names, if any.
const screenshotsVariable = "VERTICALSCALER_TEST_SCREENSHOTS"

// browser is a page of a headless browser. It fails the test if the page needs another host, if
// it breaks a rule of its content security policy, or if its script fails.
type browser struct {
	*testing.T
	ctx context.Context //nolint:containedctx // it is the tab: chromedp finds it there

	mu       sync.Mutex
	expected bool // whether failures are part of the test
	failures []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(cmp.Or(os.Getenv("CHROMIUM"), "chromium")), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1280, 1500), chromedp.WSURLReadTimeout(webTimeout),
	)
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	tab, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	b := &browser{T: t}
	must.Succeed(t, chromedp.Listen(tab, b.listen))
	b.ctx, end = context.WithTimeout(tab, webTimeout)
	t.Cleanup(end)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, failure := range b.failures {
			t.Error(failure)
		}
	})
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, log.Enable, cdp.Empty{})
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "http://127.0.0.1:") {
			b.failures = append(b.failures, "the page requests "+e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		b.failures = append(b.failures, "the script fails: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if !b.expected {
			b.failures = append(b.failures, "the browser says "+e.Entry.Text)
		}
	}
}

// expect reports whether requests fail from now on, as part of the test.
func (b *browser) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = true
}

// call sends a command of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.Helper()
	answer, err := chromedp.Call(b.ctx, command, params)
	must.Succeed(b, err)
	return answer
}

// do does something in the browser.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		b.Fatalf("%v; the page says:\n%s", err, text)
	}
}

// value is the value of an expression.
func value[T any](b *browser, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shows fails the test unless an expression is true.
func (b *browser) shows(expression, otherwise string) {
	b.Helper()
	if !value[bool](b, expression) {
		b.Error(otherwise)
	}
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.Helper()
	testkit.Eventually(b.T, time.Minute, func() string {
		if value[bool](b, expression) {
			return ""
		}
		return expression + " is not true; the page says:\n" + value[string](b, "document.body.innerText")
	})
}

// presses presses keys, one after the other, and says what is focused then.
func (b *browser) presses(keys ...string) (focused string) {
	b.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
	return value[string](b, `document.activeElement?.id || document.activeElement?.className || ''`)
}

// shoots takes a screenshot of the visible part of the page, if the environment names a folder for screenshots.
func (b *browser) shoots(name string) {
	b.Helper()
	folder := os.Getenv(screenshotsVariable)
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	must.Succeed(b, err)
	must.Succeed(b, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600))
}

// contrasts are the texts whose color is too close to that of what is behind them.
const contrasts = `(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).map(Number).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const isSeeThrough = (c) => c === 'transparent' || /, 0\)$/.test(c);
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('svg') && !e.closest('svg text')) continue;
    let behind = e;
    while (behind && isSeeThrough(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const style = getComputedStyle(e);
    const a = light(e.closest('svg') ? style.fill : style.color), z = light(behind ? getComputedStyle(behind).backgroundColor : 'rgb(255, 255, 255)');
    const contrast = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
    if (contrast < 4.5) bad.push(e.tagName + '.' + e.className + ' ' + contrast.toFixed(2) + ' ' + e.textContent.trim().slice(0, 40));
  }
  return bad;
})()`

func TestWebTheFleet(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	b.do(chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#scalers")))
	if n := value[int](b, `document.querySelectorAll('tbody tr').length`); n != otherApps+1 {
		t.Errorf("%d rows", n)
	}
	b.shoots("fleet-light")
	for name, width := range map[string]int64{"wide": 1920, "laptop": 1280, "phone": 360} {
		b.do(chromedp.EmulateViewport(width, 1300))
		if over := value[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("%s: the page is %d pixels too wide", name, over)
		}
		if over := value[int](b, `(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.getElementById('scalers-wide'))`); over > 0 {
			t.Errorf("%s: the table is %d pixels too wide", name, over)
		}
		b.shoots("fleet-" + name)
	}
	// The number of scalers that need a user leads to them.
	b.do(chromedp.EmulateViewport(1280, 1300), chromedp.Click(chromedp.CSS("#need-user")), chromedp.WaitVisible(chromedp.CSS("#choice-all")))
	b.shows(`document.querySelector('tbody tr').getBoundingClientRect().bottom < innerHeight && !document.querySelector('tbody .tag.fine[title]')`,
		"the first scaler that needs a user is not on the screen")
	b.shoots("fleet-need-user")
	b.do(chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#scalers")))
	// A choice leads to an address that can be kept, and survives an update.
	b.do(chromedp.EmulateViewport(1280, 1300), chromedp.SetValue(chromedp.CSS("#choice-state"), "QoSChange"), chromedp.SendKeys(chromedp.CSS("#choice-text"), "1"), chromedp.Click(chromedp.CSS("#choice-show")),
		chromedp.WaitVisible(chromedp.CSS("#choice-all")))
	chosen := value[int](b, `document.querySelectorAll('tbody tr').length`)
	if chosen == 0 || chosen > 60 || value[bool](b, `[...document.querySelectorAll('tbody .tag[title]')].some((e) => e.textContent !== 'QoSChange')`) {
		t.Errorf("%d rows are chosen", chosen)
	}
	first := value[string](b, `document.getElementById('read-at').dateTime`)
	b.until(fmt.Sprintf(`document.getElementById('read-at').dateTime !== %q`, first))
	if n := value[int](b, `document.querySelectorAll('tbody tr').length`); n != chosen {
		t.Errorf("%d rows after an update, %d before", n, chosen)
	}
}

func TestWebAScalerIsUpdated(t *testing.T) {
	s := newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	b.do(chromedp.Navigate(address+"scalers/shop/web"), chromedp.WaitVisible(chromedp.CSS("#state")))
	for _, want := range []string{"Verifying", "ScaleDown: app cpu 500m->310m", "15 % more", "120m to 320m", "512Mi was reverted"} {
		if !value[bool](b, fmt.Sprintf(`document.body.innerText.includes(%q)`, want)) {
			t.Errorf("there is no %q", want)
		}
	}
	for name, width := range map[string]int64{"phone": 360, "laptop": 1280} {
		b.do(chromedp.EmulateViewport(width, 1300))
		if over := value[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("%s: the page is %d pixels too wide", name, over)
		}
		b.shoots("scaler-" + name)
	}
	b.do(chromedp.EmulateViewport(1280, 1300))

	// The open details and the focus of a user stay while the page changes below.
	b.do(chromedp.Click(chromedp.CSS("#c0-cpu-values summary")), chromedp.Focus(chromedp.CSS("#c0-memory-values summary")))
	s.put(usageOf(newPod("shop", "web-5d4f8b9c4-1", "web", "1", "1", ""), "777m", "410Mi"))
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.Status.Conditions[1].Reason, web.Status.Conditions[1].Status = "Applied", "True"
	})
	b.until(`document.getElementById('state').textContent === 'Applied' && document.body.innerText.includes('777m')`)
	b.shows(`document.getElementById('c0-cpu-values').open && !document.getElementById('c0-memory-values').open`,
		"an update closes what the user has opened")
	if focused := b.presses(); focused != "c0-memory-summary" {
		t.Errorf("an update moves the focus to %q", focused)
	}
	if news := value[string](b, `document.getElementById('news').textContent`); news != "Now: Applied" {
		t.Errorf("a screen reader is told %q", news)
	}
}

func TestWebResourcesAreCopied(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	b.do(chromedp.Navigate(address+"scalers/shop/web"), chromedp.WaitVisible(chromedp.CSS("#state")),
		chromedp.Click(chromedp.CSS("#c0-Burstable-summary")), chromedp.Click(chromedp.CSS("#c0-Guaranteed-summary")), chromedp.Click(chromedp.CSS("#c0-Burstable-copy")))
	b.until(`document.getElementById('news').textContent === 'Copied.'`)
	b.shoots("scaler-copied")
	// A browser that refuses selects the text, and the selection survives updates.
	value[bool](b, `(navigator.clipboard.writeText = () => Promise.reject(), true)`)
	reads := value[int](b, `performance.getEntriesByType('resource').length`)
	b.do(chromedp.Click(chromedp.CSS("#c0-Guaranteed-copy")))
	b.until(fmt.Sprintf(`performance.getEntriesByType('resource').length > %d && document.getElementById('news').textContent.includes('is selected')`, reads+1))
	if text := value[string](b, `getSelection().toString()`); !strings.HasPrefix(text, "resources:\n  limits:\n    cpu: 310m") {
		t.Errorf("the selection is %q", text)
	}
}

func TestWebWithTheKeyboard(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	b.do(chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#scalers")))
	if focused := b.presses(kb.Tab); focused != "skip" {
		t.Fatalf("the first stop is %q", focused)
	}
	b.shows(`document.activeElement.getBoundingClientRect().left >= 0`, "the link to the content is not visible when it is focused")
	if focused := b.presses(kb.Enter); focused != "main" {
		t.Errorf("the link to the content leads to %q", focused)
	}
	// From there to the first scaler, with a visible focus at each stop.
	stops := 0
	for focused := ""; !strings.HasPrefix(focused, "row-"); stops++ {
		if focused = b.presses(kb.Tab); stops > 20 {
			t.Fatalf("no scaler within %d stops, the last is %q", stops, focused)
		}
		if !value[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== 'none'`) {
			t.Errorf("the focus on %q is not visible", focused)
		}
	}
	b.presses(kb.Enter)
	b.do(chromedp.WaitVisible(chromedp.CSS("#state")))
	// Everything that can be clicked can be reached.
	all := value[[]string](b, `[...document.querySelectorAll('a, button, summary, [tabindex="0"]')].filter((e) => e.checkVisibility()).map((e) => e.id || e.className)`)
	var reached []string
	for range len(all) + 5 {
		reached = append(reached, b.presses(kb.Tab))
	}
	for _, id := range all {
		if !slices.Contains(reached, id) {
			t.Errorf("the keyboard does not reach %q, only %q", id, reached)
		}
	}
	// Space opens the values of a plot, and pauses updates.
	b.do(chromedp.Focus(chromedp.CSS("#c0-cpu-summary")))
	b.presses(" ")
	b.shows(`document.getElementById('c0-cpu-values').open`, "Space does not open the values")
	b.do(chromedp.Focus(chromedp.CSS("#pause")))
	b.presses(" ")
	b.shows(`document.getElementById('pause').getAttribute('aria-pressed') === 'true' && document.getElementById('pause').textContent === 'Resume updates'`,
		"Space does not pause the updates")
}

// A screen reader has a name for everything, and the plots as words.
func TestWebWithAScreenReader(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	for _, path := range []string{"", "scalers/shop/web"} {
		b.do(chromedp.Navigate(address+path), chromedp.WaitVisible(chromedp.CSS("#main")))
		roles := map[string]int{}
		for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role, name := strings.Trim(string(n.Role.Value), `"`), ""
			if n.Name != nil {
				name = strings.Trim(string(n.Name.Value), `"`)
			}
			roles[role]++
			if slices.Contains([]string{"link", "button", "image", "textbox", "searchbox", "combobox", "region", "navigation", "figure", "table"}, role) && name == "" && role != "figure" && role != "table" {
				t.Errorf("%q: a %s has no name", path, role)
			}
			if role == "image" && path != "" && !strings.HasPrefix(name, "Usage of ") {
				t.Errorf("a plot is called %q", name)
			}
		}
		if roles["main"] != 1 || roles["banner"] != 1 || roles["heading"] < 3 || roles["image"] == 0 {
			t.Errorf("%q: roles %v", path, roles)
		}
		if n := value[int](b, `document.querySelectorAll('h1').length`); n != 1 {
			t.Errorf("%q: %d headings of the first level", path, n)
		}
		if twice := value[[]string](b, `[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i)`); len(twice) > 0 {
			t.Errorf("%q: ids that are there twice: %q", path, twice)
		}
	}
}

func TestWebColorsCanBeRead(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A")
	b := newBrowser(t)
	papers := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for name, path := range map[string]string{"fleet": "", "scaler": "scalers/shop/web"} {
			b.do(chromedp.Navigate(address+path), chromedp.WaitVisible(chromedp.CSS("#main")))
			if bad := value[[]string](b, contrasts); len(bad) > 0 {
				t.Errorf("%s, %s: %s", scheme, name, strings.Join(bad, "\n"))
			}
			b.shoots(name + "-" + scheme)
		}
		papers[scheme] = value[string](b, `getComputedStyle(document.body).backgroundColor`)
	}
	if papers["light"] == papers["dark"] {
		t.Errorf("both are %s", papers["dark"])
	}
}

func TestWebALostConnectionIsReported(t *testing.T) {
	s := newFleetServer(t)
	address, stop := startDashboard(t, "-A")
	b := newBrowser(t)
	b.do(chromedp.Navigate(address+"scalers/shop/web"), chromedp.WaitVisible(chromedp.CSS("#state")))
	b.expect()

	// First the cluster fails, and recovers.
	s.forbid(ours)
	b.until(`!document.getElementById('banner').hidden && document.getElementById('banner').textContent.includes('you may not')`)
	b.shows(`document.getElementById('state').textContent === 'Verifying'`, "what was read last is gone")
	b.shoots("cluster-fails")
	s.forbid()
	b.until(`document.getElementById('banner').hidden && document.getElementById('news').textContent.startsWith('Connected again')`)

	// Then the command stops.
	must.Succeed(t, stop())
	b.until(`document.getElementById('banner').textContent.startsWith('Connection lost at ')`)
	b.shows(`document.getElementById('banner').getAttribute('role') === 'alert' && document.getElementById('state').textContent === 'Verifying'`,
		"the page does not show what was read last")
	b.shoots("connection-lost")
}

func TestWebAnExpiredLinkIsReported(t *testing.T) {
	newFleetServer(t)
	source, clock := newSource(t, past.Options{})
	handler := pages.New(source, pages.Options{Token: "secret", Expires: clock.Now().Add(time.Hour), Clock: clock, Refresh: time.Second})
	address := serve(t, handler.ServeHTTP)
	b := newBrowser(t)
	b.do(chromedp.Navigate(address+"/secret/scalers/shop/web"), chromedp.WaitVisible(chromedp.CSS("#state")))
	b.expect()
	clock.SetTime(clock.Now().Add(time.Hour))
	b.until(`document.getElementById('banner').textContent.startsWith('This link has expired. Stop the command')`)
	b.shows(`document.getElementById('state').textContent === 'Verifying'`, "what was read last is gone")
	b.shoots("expired")
	b.do(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("#problem")))
	if text := value[string](b, `document.body.innerText`); !strings.Contains(text, "This link has expired") || strings.Contains(text, "shop") {
		t.Errorf("after a reload, the page says %q", text)
	}
	b.shoots("expired-reload")
}

func TestWebThePast(t *testing.T) {
	newFleetServer(t)
	address, _ := startDashboard(t, "-A", "--prometheus", serve(t, answer))
	b := newBrowser(t)
	b.do(chromedp.Navigate(address+"scalers/shop/web"), chromedp.WaitVisible(chromedp.CSS("#state")),
		chromedp.Click(chromedp.CSS("#span-week")), chromedp.WaitVisible(chromedp.CSS("#span-week[aria-current]")))
	if title := value[string](b, `document.getElementById('c0-cpu-title').textContent`); title != "Usage of CPU against request and limit, last 8d" {
		t.Errorf("the plot is called %q", title)
	}
	// 8 days without a gap are one line.
	if path := value[string](b, `document.querySelector('.usage-line').getAttribute('d')`); strings.Count(path, "M") != 1 || len(path) < 500 {
		t.Errorf("usage is drawn as %s", path)
	}
	b.shoots("scaler-week")
	// The plot has the requests and limits of each time, and does not extend lines that have ended.
	address, _ = startDashboard(t, "-A", "--prometheus", pastServer(t, "kube-state-metrics"))
	pathOf := func(resource, class string) string {
		return value[string](b, fmt.Sprintf(`(document.querySelector('[aria-labelledby^="c0-%s-title"] .%s')?.getAttribute('d') ?? '')`, resource, class))
	}
	for span, parts := range map[string]map[string]int{"week": {"request": 2, "limit": 2, "usage-line": 2}, "day": {"request": 1, "limit": 0, "usage-line": 1}} {
		b.do(chromedp.Navigate(address+"scalers/shop/web?span="+span), chromedp.WaitVisible(chromedp.CSS("#span-"+span+"[aria-current]")))
		for class, want := range parts {
			if path := pathOf("cpu", class); strings.Count(path, "M") != want {
				t.Errorf("%s: the %s has %d parts, want %d: %s", span, class, strings.Count(path, "M"), want, path)
			}
		}
		if path := pathOf("memory", "limit"); path == "" {
			t.Errorf("%s: there is no memory limit", span)
		}
		b.shoots("scaler-past-" + span)
	}
	b.do(chromedp.EmulateViewport(360, 1300))
	b.shoots("scaler-past-phone")
	b.do(chromedp.EmulateViewport(1280, 1300))
	b.do(chromedp.Click(chromedp.CSS("#backtest")), chromedp.WaitVisible(chromedp.CSS("figure svg")))
	if text := value[string](b, `document.body.innerText`); !strings.Contains(text, "shop/web/app") || !strings.Contains(text, "vpa") {
		t.Errorf("the backtest says %s", text)
	}
	if cut := value[int](b, `[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth).length`); cut > 0 {
		t.Errorf("%d tables of the backtest are cut off", cut)
	}
	if margin := value[string](b, `getComputedStyle(document.body).maxWidth`); margin == "none" {
		t.Error("the styles of the backtest are refused")
	}
	b.shoots("backtest")
}
