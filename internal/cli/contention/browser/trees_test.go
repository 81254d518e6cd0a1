package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page/scene"
)

func TestPage_Conclusion_IsAtTheTop(t *testing.T) {
	t.Parallel()
	r := scene.New(scene.Options{Seed: 3, Least: 100, Resources: 1, Crowd: 8})
	b := open(t, r, page.Options{})
	require.Equal(t, r.Conclusion[0].Text+". "+r.Conclusion[0].Advice+".", evaluate[string](b, `document.querySelector("header #conclusion li").textContent`))
	require.True(t, evaluate[bool](b, `document.getElementById("conclusion").getBoundingClientRect().bottom < innerHeight`), "it is seen without scrolling")
}

// A root is opened and closed with the keyboard, and links to its hold and its waits.
func TestPage_Tree_WorksWithTheKeyboard(t *testing.T) {
	t.Parallel()
	r := large()
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
	b := open(t, large(), everything)
	main := evaluate[float64](b, `document.querySelector("main").clientWidth`)
	for _, id := range []string{"roots-section", "types-section", "owners-section", "load-section"} {
		require.InDelta(t, main, evaluate[float64](b, `document.getElementById("`+id+`").offsetWidth`), 1, id)
	}
	require.Positive(t, evaluate[int](b, `document.querySelectorAll("#types tbody tr:not(.sub)").length`))
	require.Contains(t, evaluate[string](b, `document.querySelector("#load svg").getAttribute("aria-label")`), "waiting at once")
	evaluate[bool](b, `document.querySelector("#load summary").click(), true`)
	require.Positive(t, evaluate[int](b, `document.querySelectorAll("#load tbody tr").length`))
}
