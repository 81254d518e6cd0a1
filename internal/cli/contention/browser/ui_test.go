package browser

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// site is `lockstep ui` in a browser, with locks in memory.
type site struct {
	*tab
	*lockcore.Steps
	address string
	orders  uint32
}

func newSite(t *testing.T) *site {
	t.Helper()
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	server := httptest.NewServer(ui.Handler(ui.Options{Site: inspect.Site{Locker: l.Steps(), Flags: []string{"--database", "bank"}}}))
	t.Cleanup(server.Close)
	return &site{tab: start(t, server.URL), Steps: l.Steps(), address: server.URL}
}

// ask requests a resource once, and queues if it is busy.
func (s *site) ask(lockID, resource string) {
	s.t.Helper()
	s.orders++
	_, err := s.Enter(s.t.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Part: "step", Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
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
		require.NoError(s.t, s.Release(s.t.Context(), lockcore.Release{
			LockID: lockID, Resources: []string{resource}, FirstFence: st.FirstFence, Force: true, Now: true, Reason: "a drill",
		}))
	}
}

// shows waits until the page has a text.
func (s *site) shows(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return strings.Contains(s.text(), text) }, time.Minute, 50*time.Millisecond, "the page does not say %q", text)
}

// refreshed waits until the page has fetched itself again.
func (s *site) refreshed() {
	s.t.Helper()
	const at = `(document.querySelector(".at time") || {}).textContent || ""`
	was := evaluate[string](s.tab, at)
	s.eventually(func() bool { return evaluate[string](s.tab, at) != was }, "it is refreshed")
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
	s.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "account/7"+kb.Enter), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	s.shows("1 resource in use")
	s.click(`a[href="/resource?name=account%2F7"]`)
	s.shows("first holds account/7 (exclusive)")
	s.shows("second waits for account/7 (exclusive)")
	s.end("first", "account/7")
	s.shows("second was granted account/7") // without loading the page again
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

	const command = `lockstep release 1 root --database bank --reason 'it'\''s dead'`
	shown := func() string { return get(s.tab, chromedp.Text(chromedp.CSS("main code"))) }
	require.Equal(t, "lockstep release 1 root --database bank --reason 'your reason'", shown())
	s.click("details summary")
	s.run(chromedp.SendKeys(chromedp.CSS("input.reason"), "it's dead"))
	require.Equal(t, command, shown())
	evaluate[bool](s.tab, "document.activeElement.blur() || true")
	s.refreshed()
	require.Equal(t, command, shown(), "the reason stays")
	require.Contains(t, s.text(), "lock ID", "the details stay open")
	s.click("button.copy")
	require.Eventually(t, func() bool {
		said := get(s.tab, chromedp.Text(chromedp.CSS("button.copy")))
		return said == "copied" || (said == "selected" && evaluate[string](s.tab, "getSelection().toString()") == command)
	}, time.Minute, 50*time.Millisecond)
	evaluate[bool](s.tab, "getSelection().removeAllRanges() || true")
	s.end("root", "1")
	require.Eventually(t, func() bool { return !strings.Contains(s.text(), "root holds 1") }, time.Minute, 50*time.Millisecond)
	require.Equal(t, 1, evaluate[int](s.tab, `document.querySelectorAll('.tree ul a[href="/resource?name=2"]').length`))
	s.click(`.tree .root > a[href="/why?workflow=middle"]`)
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
	require.Equal(t, 2, evaluate[int](s.tab, `document.querySelectorAll("svg path.arrow").length`))
	require.Equal(t, []string{"/resource?name=2", "/resource?name=1", "/why?workflow=a", "/why?workflow=b"}, evaluate[[]string](s.tab,
		`[...document.querySelectorAll("svg a")].map((a) => a.getAttribute("href"))`))
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
	s.shows("1 resource in use")
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
	for range 14 {
		_, err := chromedp.Run(s.ctx, chromedp.KeyEvent(kb.Tab))
		require.NoError(t, err)
		reached[evaluate[string](s.tab, `document.activeElement.textContent || document.activeElement.name || document.activeElement.id`)] = true
		if reached["r"] {
			break
		}
	}
	require.Subset(t, reached, map[string]bool{"Resources": true, "Waits": true, "Orphans": true, "Doctor": true, "workflow": true, "live": true, "q": true, "r": true})
	s.refreshed()
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

// brokenScript returns the words of up to 40 letters that are on two lines, and the elements that stick out of the window.
const brokenScript = `(() => {
	const found = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let node; (node = texts.nextNode());) {
		for (const word of node.data.matchAll(/\S+/g)) {
			const range = document.createRange();
			range.setStart(node, word.index);
			range.setEnd(node, word.index + word[0].length);
			const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));
			if (word[0].length <= 40 && lines.size > 1) found.push("broken: " + word[0]);
		}
	}
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > width) found.push("scrolls: " + document.documentElement.scrollWidth);
	for (const e of document.body.querySelectorAll("*")) {
		const box = e.getBoundingClientRect();
		if (box.width && (box.right > width + 1 || box.left < -1)) found.push("sticks out: " + e.tagName + " " + e.textContent.slice(0, 40));
		if (e.tagName === "rect" || e.tagName === "text") {
			const others = [...e.ownerSVGElement.querySelectorAll("text, rect")].filter((o) => o.closest("a") !== e.closest("a")).map((o) => [o, o.getBoundingClientRect()]);
			for (const [o, b] of others) if (b.left < box.right && box.left < b.right && b.top < box.bottom && box.top < b.bottom) found.push("overlaps: " + e.closest("a").textContent + o.closest("a").textContent);
		}
		if (e.tagName === "text" && (box.left < e.ownerSVGElement.getBoundingClientRect().left || box.right > e.ownerSVGElement.getBoundingClientRect().right)) found.push("clipped: " + e.textContent);
	}
	return found;
})()`

// It takes the pictures for docs/pictures, which the package's page explains.
func TestUI_Widths_BreakNoWordAndFit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	type page struct {
		path, shows, picture string
		whole                bool
	}
	look := func(pages ...page) {
		for _, scheme := range []string{"light", "dark"} {
			_, err := chromedp.Call(s.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			require.NoError(t, err)
			for _, p := range pages {
				for _, width := range []int64{480, 1400, 1920} {
					s.run(chromedp.EmulateViewport(width, 700))
					s.visit(s.address + p.path)
					s.shows(p.shows)
					require.Empty(t, evaluate[[]string](s.tab, brokenScript), "%s at %d pixels", p.path, width)
					if width == 1400 && p.picture != "" {
						s.picture("ui-"+p.picture+"-"+scheme, p.whole)
					}
				}
			}
		}
	}
	look(
		page{"/", "OrderSaga", "home", true},
		page{"/resource?name=" + url.QueryEscape(jacket), "order-1051 waits for", "resource", true},
		page{"/why?workflow=order-1057", "ChargeCard", "tree", true},
		page{"/orphans", "order-0991", "", true},
		page{"/doctor", "not checked", "", true},
	)
	s.deadlock("stock/sku-31007-tent-two-persons", "warehouse/hamburg/dock-3", "stock/sku-31990-camping-lantern")
	look(page{"/waits", "started last", "deadlock", false})
	for _, n := range []int{2, 4, 5} {
		var resources []string
		for i := range n {
			resources = append(resources, fmt.Sprintf("stock/sku-%d%04d-folding-chair-of-beech-wood", n, i))
		}
		s.deadlock(resources...)
		s.shows(resources[1])
	}
	look(page{"/waits", "sku-50004", "", true})
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{
		Name: "phones", Members: []string{"phone-for-the-front-desk", "phone-2", "phone-3"}, Out: map[string]string{"phone-2": "display broken, in repair since Monday"},
	}))
	for i := range 4 {
		s.at(time.Duration(30-i)*time.Second, fmt.Sprintf("order-12%02d", i), lockcore.Pool("phones"))
	}
	s.refresh()
	look(page{"/policies", "pool of 3", "", true}, page{"/resource?name=phones", "phone-for-the-front-desk", "", true})
}
