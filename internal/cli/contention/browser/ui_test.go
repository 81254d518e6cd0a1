package browser

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// site is `lockstep ui` in a browser, with locks in memory.
type site struct {
	*tab
	*party.Locker
	address string
	orders  uint32
}

func newSite(t *testing.T) *site {
	t.Helper()
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	server := httptest.NewServer(ui.Handler(ui.Options{Site: inspect.Site{Locker: l, Flags: []string{"--database", "bank"}}}))
	t.Cleanup(server.Close)
	return &site{tab: start(t, server.URL), Locker: l, address: server.URL}
}

// ask requests a resource once, and queues if it is busy.
func (s *site) ask(lockID, resource string) {
	s.t.Helper()
	s.orders++
	_, err := s.Enter(s.t.Context(), party.Request{
		LockID: lockID, Part: "step", Order: party.Order{Schedule: s.orders, Attempt: 1}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
	})
	if err != nil {
		require.ErrorIs(s.t, err, lockcore.ErrBusy)
	}
}

// end ends a hold as `lockstep release` does.
func (s *site) end(lockID, resource string) {
	s.t.Helper()
	for st, err := range s.Status(s.t.Context(), lockcore.Filter{Resource: resource, LockID: lockID}) {
		require.NoError(s.t, err)
		require.NoError(s.t, s.Release(s.t.Context(), party.Release{
			LockID: lockID, Resources: []string{resource}, FirstFence: st.FirstFence, Force: true, Now: true, Reason: "a drill",
		}))
	}
}

// shows waits until the page has a text.
func (s *site) shows(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.text(), text) }, time.Minute, 50*time.Millisecond, "the page does not say %q", text)
}

// text returns the text of the page, empty while another page loads.
func (s *site) text() string {
	return evaluate[string](s.tab, `(document.getElementById("main") || { innerText: "" }).innerText`)
}

func TestUI_Resource_ShowsItsQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ask("first", "account/7")
	s.ask("second", "account/7")
	s.ask("third", "account/7")
	s.ask("other", "account/8")
	s.visit(s.address)
	s.shows("2 resources in use")
	s.picture("ui-resources-light", false)
	s.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "account/7"+kb.Enter), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	s.shows("1 resources in use")
	s.click(`a[href="/resource?name=account%2F7"]`)
	s.shows("first holds account/7 (exclusive)")
	s.shows("second waits for account/7 (exclusive)")
	_, err := chromedp.Call(s.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	require.NoError(t, err)
	s.picture("ui-resource-dark", false)

	s.end("first", "account/7")
	s.shows("second was granted account/7") // without loading the page again
	require.Contains(t, s.text(), "held (exclusive): first")
	require.Contains(t, s.text(), "third waits for account/7 (exclusive)")
}

func TestUI_BlockingTree_OffersTheRepair(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ask("root", "1")
	s.ask("middle", "2")
	s.ask("middle", "1")
	s.ask("leaf", "2")
	s.visit(s.address)
	s.run(chromedp.SendKeys(chromedp.CSS("input[name=workflow]"), "leaf"+kb.Enter), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	s.shows("leaf waits for 2 (exclusive)")
	tree := s.text()
	require.Less(t, strings.Index(tree, "root holds 1"), strings.Index(tree, "middle waits for 1"))
	require.Less(t, strings.Index(tree, "middle waits for 1"), strings.LastIndex(tree, "leaf waits for 2"))
	s.picture("ui-why-light", false)

	const command = "lockstep release 1 root --reason 'say why' --database bank"
	require.Equal(t, command, get(s.tab, chromedp.Text(chromedp.CSS("main code"))))
	s.click("button.copy")
	require.Eventually(t, func() bool {
		said := get(s.tab, chromedp.Text(chromedp.CSS("button.copy")))
		return said == "copied" || (said == "selected" && evaluate[string](s.tab, "getSelection().toString()") == command)
	}, time.Minute, 50*time.Millisecond)
	evaluate[bool](s.tab, "getSelection().removeAllRanges() || true")
	s.end("root", "1")
	require.Eventually(t, func() bool { return !strings.Contains(s.text(), "root holds 1") }, time.Minute, 50*time.Millisecond)
	s.click(`.tree > li > a[href="/why?workflow=middle"]`)
	s.shows("Why does middle wait?")
}

func TestUI_Deadlock_AppearsAndGoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.visit(s.address + "/waits")
	s.shows("No party waits.")
	s.ask("a", "1")
	s.ask("b", "2")
	s.ask("a", "2")
	s.ask("b", "1")
	s.shows("a waits for b on 2")
	require.Len(t, evaluate[[]string](s.tab, `[...document.querySelectorAll("svg path.arrow")].map((p) => p.getAttribute("d"))`), 2)
	s.picture("ui-deadlock-light", false)
	broken, err := s.BreakDeadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, broken, 1)
	require.Eventually(t, func() bool { return s.text() != "" && !strings.Contains(s.text(), "gives up") }, time.Minute, 50*time.Millisecond)
	s.shows("Root blockers") // the victim's lock is still in the way of the other
}

// The page lists the hottest resources, and finds the others by name.
func TestUI_ManyResources_ListsTheHottest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 10_000 {
		s.ask("holder", fmt.Sprintf("item/%04d", i))
	}
	s.ask("waiter", "item/7777")
	s.visit(s.address)
	s.shows("The 200 hottest of 10000 resources")
	require.Equal(t, "item/7777", get(s.tab, chromedp.Text(chromedp.CSS("tbody th"))))
	s.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "item/0042"+kb.Enter), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	s.shows("1 resources in use")
}

func TestUI_HostileNames_StayText(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ask(script, picture)
	s.ask(picture, picture)
	for _, page := range []string{"/", "/resource?name=%3Cimg+src%3D%22https%3A%2F%2Fexample.com%2Fx%22+onerror%3D%22window.pwned+%3D+2%22%3E"} {
		s.visit(s.address + page)
		s.shows(script)
		require.False(t, evaluate[bool](s.tab, "window.pwned !== undefined"))
	}
}

// The keyboard reaches everything, and a refresh keeps the focus.
func TestUI_Keyboard_ReachesEverything(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.ask("holder", "r")
	s.visit(s.address)
	reached := map[string]bool{}
	for range 12 {
		_, err := chromedp.Run(s.ctx, chromedp.KeyEvent(kb.Tab))
		require.NoError(t, err)
		reached[evaluate[string](s.tab, `document.activeElement.textContent || document.activeElement.name || document.activeElement.id`)] = true
		if reached["r"] {
			break
		}
	}
	require.Subset(t, reached, map[string]bool{"Resources": true, "Waits": true, "workflow": true, "live": true, "q": true, "r": true})
	was := evaluate[string](s.tab, `document.querySelector(".at time").textContent`)
	require.Eventually(t, func() bool { return evaluate[string](s.tab, `document.querySelector(".at time").textContent`) != was }, time.Minute, 50*time.Millisecond)
	require.Equal(t, "r", evaluate[string](s.tab, `document.activeElement.textContent`))
	require.Empty(t, evaluate[[]string](s.tab, `[...document.querySelectorAll("input")].filter((i) => !i.closest("label")).map((i) => i.outerHTML)`), "inputs have labels")
}

// The page sends no request while it waits for an answer.
func TestUI_SlowServer_IsAskedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.visit(s.address)
	evaluate[bool](s.tab, `(window.asked = 0, window.fetch = () => { window.asked++; return new Promise((done) => { window.answer = done; }); }, true)`)
	require.Eventually(t, func() bool { return evaluate[int](s.tab, "window.asked") == 1 }, time.Minute, 50*time.Millisecond)
	const afterTwoMore = `new Promise((done) => setTimeout(() => done(window.asked), 5000))`
	require.Equal(t, 1, evaluate[int](s.tab, afterTwoMore))
	evaluate[bool](s.tab, `(window.answer(new Response("")), true)`)
	require.Eventually(t, func() bool { return evaluate[int](s.tab, "window.asked") == 2 }, time.Minute, 50*time.Millisecond, "after the answer it asks again")
}
