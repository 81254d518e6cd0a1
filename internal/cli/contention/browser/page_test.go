package browser

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
)

const traceURL = "http://127.0.0.1:16686/trace/{trace}?uiFind={span}"

// large has at least 10,000 waits and holds, all of them in the page. Tests must not change it.
var large = sync.OnceValue(func() *contention.Report { return sagaReport(sagaOptions{Seed: 1, Least: 10_000, Resources: 6}) })

// some has at least 1,000 of each, which a browser draws and photographs sooner. Tests must not change it.
var some = sync.OnceValue(func() *contention.Report { return sagaReport(sagaOptions{Seed: 1, Least: 1_000, Resources: 6}) })

var everything = page.Options{Title: "worker-1.json, worker-2.json", TraceURL: traceURL, MaxHolds: 100_000}

// typical returns a wait for the most waited-for resource that several holds blocked, and the hold whose end let it in.
func typical(t *testing.T, r *contention.Report) (wait, hold int) {
	t.Helper()
	for i, w := range r.Waits {
		last := slices.IndexFunc(w.Blockers, func(b contention.Blocker) bool { return b.Last })
		if w.Resource == r.Resources[0].Name && len(w.Blockers) >= 3 && last >= 0 && i > len(r.Waits)/2 {
			return i, w.Blockers[last].Hold
		}
	}
	require.FailNow(t, "the scene has no such wait")
	return 0, 0
}

// selectWait finds a wait in the list as a person would, by typing and clicking.
func (b *tab) selectWait(r *contention.Report, i int) string {
	b.t.Helper()
	w := r.Waits[i]
	evaluate[string](b, `document.getElementById("finder-text").value = ""`)
	b.run(chromedp.SendKeys(chromedp.CSS("#finder-text"), w.Owner+" "+w.Span))
	b.click(fmt.Sprintf(`#finder-list a[href="#wait-%d"]`, i))
	return b.details(fmt.Sprintf("wait-%d", i))
}

func TestPage_Links_LeadFromWaitToBlockerAndBack(t *testing.T) {
	t.Parallel()
	r := large()
	require.GreaterOrEqual(t, len(r.Holds), 10_000)
	require.GreaterOrEqual(t, len(r.Waits), 10_000)
	wait, hold := typical(t, r)
	w, h := r.Waits[wait], r.Holds[hold]
	b := open(t, r, everything)

	said := b.selectWait(r, wait)
	require.Contains(t, said, w.Owner)
	require.Contains(t, said, fmt.Sprintf("Blocked by %d\u00a0holds", len(w.Blockers)))
	for _, blocker := range w.Blockers {
		require.Contains(t, said, blocker.Owner)
		require.Contains(t, said, blocker.Step)
	}

	b.click(fmt.Sprintf(`#details a[href="#hold-%d"]:not(.facts a)`, hold))
	said = b.details(fmt.Sprintf("hold-%d", hold))
	for _, part := range []string{h.Owner, h.LockID, fmt.Sprint(h.Fence), h.Steps[0].Name, h.Trace, h.Span, h.Outcome} {
		require.Contains(t, said, part)
	}
	require.Contains(t, said, fmt.Sprintf("It kept waiting: %d\u00a0requests", len(h.Blocks)))

	b.click(fmt.Sprintf(`#details a[href="#wait-%d"]:not(.facts a)`, wait))
	require.Contains(t, b.details(fmt.Sprintf("wait-%d", wait)), w.Owner)
	// The browser's own way back leads there too.
	b.run(chromedp.NavigateBack())
	b.details(fmt.Sprintf("hold-%d", hold))
}

func TestPage_Timeline_EqualsTheLists(t *testing.T) {
	t.Parallel()
	r := some()
	wait, hold := typical(t, r)
	b := open(t, r, everything)
	b.selectWait(r, wait)
	b.run(chromedp.ScrollIntoView(chromedp.CSS("#chart")))

	// Down the middle of the wait, which the page has moved to: the hold that stood then, and the waits beneath.
	w := r.Waits[wait]
	middle := w.Start.Add(w.End.Sub(w.Start) * 9 / 10)
	box := evaluate[struct{ X, Y, Height, From, To float64 }](b, `(() => {
		const canvas = document.querySelector("#chart canvas").getBoundingClientRect();
		const day = "`+w.Start.Format("2006-01-02")+`T";
		const [from, to] = document.getElementById("window").textContent.split(" to ").map((s) => Date.parse(day + s.slice(0, 12) + "Z"));
		return { X: canvas.x, Y: canvas.y, Height: canvas.height, From: from, To: to };
	})()`)
	width := evaluate[float64](b, `document.getElementById("chart").clientWidth - 28`)
	x := box.X + 14 + width*(float64(middle.UnixMicro())/1000-box.From)/(box.To-box.From)
	tips := map[string]float64{}
	for y := box.Y + 4; y < box.Y+box.Height; y += 5 {
		b.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
		if tip := evaluate[string](b, `document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent`); tip != "" {
			tips[tip] = y
		}
	}
	at := func(span string) float64 {
		for tip, y := range tips {
			if strings.Contains(tip, span) {
				return y
			}
		}
		require.FailNow(t, "nothing drawn there has the span", "%s: %v", span, tips)
		return 0
	}
	var there contention.Hold
	for _, blocker := range w.Blockers {
		if since := middle.Sub(w.Start).Seconds(); blocker.From <= since && since <= blocker.To {
			there = r.Holds[blocker.Hold]
		}
	}
	b.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, at(w.Span)))
	b.picture("light-1400-hover", false)
	b.run(chromedp.MouseClickXY(x, at(there.Span)))
	require.Contains(t, b.details(fmt.Sprintf("hold-%d", slices.IndexFunc(r.Holds, func(h contention.Hold) bool { return h.Span == there.Span }))), there.LockID)
	b.run(chromedp.MouseClickXY(x, at(w.Span)))
	require.Contains(t, b.details(fmt.Sprintf("wait-%d", wait)), r.Holds[hold].Owner)
}

func TestPage_Keys_ZoomAndPan(t *testing.T) {
	t.Parallel()
	b := open(t, sagaReport(sagaOptions{Seed: 3, Least: 100, Crowd: 8}), page.Options{})
	seen := func() string { return evaluate[string](b, `document.getElementById("window").textContent`) }
	whole := seen()
	b.run(chromedp.Focus(chromedp.CSS("#chart")))
	before := whole
	for _, key := range []string{"+", "+", kb.ArrowRight, kb.ArrowLeft, "-"} {
		b.run(chromedp.KeyEvent(key))
		b.eventually(func() bool { return seen() != before }, "the key "+key+" changes what is seen")
		before = seen()
	}
	b.run(chromedp.KeyEvent("0"))
	b.eventually(func() bool { return seen() == whole }, "0 shows all")
}

func (b *tab) eventually(is func() bool, why string) {
	b.t.Helper()
	require.Eventually(b.t, is, 20*time.Second, 30*time.Millisecond, why)
}

// The times are logged and have only a generous bound, since the machine may be busy.
func TestPage_Zoom_IsFast(t *testing.T) {
	t.Parallel()
	r := sagaReport(sagaOptions{Seed: 5, Least: 10_000, Resources: 1, Crowd: 40})
	b := open(t, r, everything)
	b.run(chromedp.ScrollIntoView(chromedp.CSS("#chart")))
	before := b.processorTime()
	measured := evaluate[struct{ Frames, Work []float64 }](b, zoomScript)
	used := 1000 * (b.processorTime() - before) / float64(len(measured.Frames))
	t.Logf("%d holds and %d waits on one resource; zooming, in ms: processor time of a redraw %.1f; until it is done %s; from frame to frame %s",
		len(r.Holds), len(r.Waits), used, percentiles(measured.Work), percentiles(measured.Frames))
	require.Less(t, used, 200.0, "of the page's thread; some 12 were measured")
}

// processorTime returns the seconds that the page's thread has used. Other processes do not count.
func (b *tab) processorTime() float64 {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, performance.Enable, performance.EnableParams{TimeDomain: "threadTicks"})
	require.NoError(b.t, err)
	got, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
	require.NoError(b.t, err)
	for _, metric := range got.Metrics {
		if metric.Name == "ThreadTime" {
			return metric.Value
		}
	}
	require.FailNow(b.t, "the browser does not say how much time its thread has used")
	return 0
}

// percentiles sorts the times and formats their spread.
func percentiles(times []float64) string {
	slices.Sort(times)
	at := func(p int) float64 { return times[min(len(times)-1, len(times)*p/100)] }
	return fmt.Sprintf("p50 %.1f, p95 %.1f, longest %.1f", at(50), at(95), at(100))
}

func TestPage_HostileNames_StayText(t *testing.T) {
	t.Parallel()
	b := open(t, evil(), page.Options{Title: script, TraceURL: traceURL})
	said := b.selectWait(evil(), 0)
	require.Contains(t, said, script)
	require.Contains(t, said, picture)
	require.Contains(t, evaluate[string](b, `document.querySelector("h1").textContent`), picture)
	require.Equal(t, 0, evaluate[int](b, `document.querySelectorAll("img, iframe, object, [onerror], [onclick]").length`))
	require.Equal(t, 3, evaluate[int](b, `document.scripts.length`))
	require.Equal(t, "undefined", evaluate[string](b, `typeof window.pwned`))
	evaluate[string](b, `location.hash = "#hold-1"`)
	require.Contains(t, b.details("hold-1"), "open")
}

func TestPage_Schemes_FitTheWindow(t *testing.T) {
	t.Parallel()
	r := some()
	wait, hold := typical(t, r)
	b := open(t, r, everything)
	address := evaluate[string](b, `location.href`)
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		require.NoError(t, err)
		for _, width := range []int64{1400, 900} {
			b.run(chromedp.EmulateViewport(width, 900))
			b.visit(address)
			name := fmt.Sprintf("%s-%d", scheme, width)
			b.picture(name+"-first", false)
			b.picture(name+"-whole", true)
			evaluate[bool](b, `document.getElementById("roots-section").scrollIntoView(), true`)
			b.picture(name+"-roots", false)
			b.selectWait(r, wait)
			evaluate[bool](b, `document.getElementById("timeline-section").scrollIntoView(), true`)
			b.picture(name+"-wait", false)
			b.click(fmt.Sprintf(`#details a[href="#hold-%d"]:not(.facts a)`, hold))
			b.details(fmt.Sprintf("hold-%d", hold))
			b.picture(name+"-hold", false)
			require.LessOrEqual(t, evaluate[int64](b, `document.documentElement.scrollWidth`), width, "nothing sticks out of the window")
		}
	}
}

func TestPage_Owners_HaveOneLineEach(t *testing.T) {
	t.Parallel()
	r := *some()
	r.Owners = slices.Clone(r.Owners)
	long := "transfer-" + strings.Repeat("0246-", 40)
	r.Owners[0].Name, r.Owners[1].Name = long, "audit-0-0008"
	r.Totals.Unexplained, r.Totals.HandOver = 0.5*r.Totals.Wait.Total, 0.2*r.Totals.Wait.Total
	b := open(t, &r, everything)
	type cell struct {
		Text, Title string
		Lines       float64
		Cut         bool
	}
	cells := evaluate[[]cell](b, `[...document.querySelectorAll("#owners td:first-child .one-line")].slice(0, 2).map((e) => ({
		Text: e.textContent, Title: e.title, Lines: Math.round(e.clientHeight / (1.5 * parseFloat(getComputedStyle(e).fontSize))), Cut: e.scrollWidth > e.clientWidth,
	}))`)
	require.Equal(t, []cell{{long, long, 1, true}, {"audit-0-0008", "audit-0-0008", 1, false}}, cells)
	tile := evaluate[string](b, `document.querySelector("#tiles .tile").textContent`)
	require.Contains(t, tile, "20\u00a0% hand-overs, 30\u00a0% unexplained")
}

func TestPage_WithoutWaits_ReportsIt(t *testing.T) {
	t.Parallel()
	b := open(t, &contention.Report{Read: contention.Reading{Files: 1, Spans: 12}}, page.Options{})
	require.Contains(t, get(b, chromedp.Text(chromedp.CSS("header"))), "No span of a lock was read.")
	require.False(t, evaluate[bool](b, `document.getElementById("timeline-section").checkVisibility()`))
}

func TestPage_Conclusion_IsAtTheTop(t *testing.T) {
	t.Parallel()
	r := sagaReport(sagaOptions{Seed: 3, Least: 100, Resources: 1, Crowd: 8})
	b := open(t, r, page.Options{})
	require.Equal(t, r.Conclusion[0].Text+". "+r.Conclusion[0].Advice+".", evaluate[string](b, `document.querySelector("header #conclusion li").textContent`))
	require.True(t, evaluate[bool](b, `document.getElementById("conclusion").getBoundingClientRect().bottom < innerHeight`), "it is seen without scrolling")
}

// A root is opened and closed with the keyboard, and links to its hold and its waits.
func TestPage_Tree_WorksWithTheKeyboard(t *testing.T) {
	t.Parallel()
	r := some()
	b := open(t, r, everything)
	const second = `document.querySelectorAll("#roots > div > ul > li > details, #roots > ul > li > details")[1]`
	root := r.Roots[1]
	said := evaluate[string](b, second+`.querySelector("summary").textContent`)
	require.Contains(t, said, root.Owner)
	require.Contains(t, said, root.Did)
	require.False(t, evaluate[bool](b, second+`.open`))
	require.Equal(t, 0, evaluate[int](b, second+`.querySelectorAll("li").length`), "a branch that is closed costs nothing")

	evaluate[bool](b, second+`.querySelector("summary").focus(), true`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.eventually(func() bool {
		return evaluate[int](b, second+`.querySelectorAll(":scope > ul > li").length`) >= len(root.Waiters)
	}, "Enter opens it")
	said = evaluate[string](b, second+`.textContent`)
	for _, w := range root.Waiters {
		require.Contains(t, said, w.Owner)
		for _, below := range w.Waiters {
			require.Contains(t, said, below.Owner)
		}
	}
	evaluate[bool](b, second+`.querySelector(":scope > ul a").focus(), true`)
	b.run(chromedp.KeyEvent(kb.Enter))
	wait := strings.TrimPrefix(evaluate[string](b, `location.hash`), "#")
	require.Contains(t, b.details(wait), "Wait of")
	evaluate[bool](b, second+`.querySelector("summary").focus(), true`)
	b.run(chromedp.KeyEvent(kb.Enter))
	b.eventually(func() bool { return !evaluate[bool](b, second+`.open`) }, "Enter closes it")
}

func TestPage_Sections_HaveFullWidth(t *testing.T) {
	t.Parallel()
	b := open(t, some(), everything)
	main := evaluate[float64](b, `document.querySelector("main").clientWidth`)
	for _, id := range []string{"roots-section", "types-section", "owners-section", "load-section"} {
		require.InDelta(t, main, evaluate[float64](b, `document.getElementById("`+id+`").offsetWidth`), 1, id)
	}
	require.Positive(t, evaluate[int](b, `document.querySelectorAll("#types tbody tr:not(.sub)").length`))
	require.Contains(t, evaluate[string](b, `document.querySelector("#load svg").getAttribute("aria-label")`), "waiting at once")
	evaluate[bool](b, `document.querySelector("#load summary").click(), true`)
	require.Positive(t, evaluate[int](b, `document.querySelectorAll("#load tbody tr").length`))
}
