package browser

import (
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// overflowScript returns the elements that stick out of their card, the texts that are cut off, and the texts whose contrast with their ground is
// below 4.5, which WCAG requires. A card is a box with a border or a ground of its own; elements in a box that scrolls may be wider.
const overflowScript = `(() => {
	const found = [];
	const name = (e) => e.tagName + "." + (e.getAttribute("class") || e.id) + " " + e.textContent.trim().slice(0, 40);
	const card = "section, header, main, .entry, .tree > li, .findings li, .alarms li, .tile, .notes, .conclusion, .advice, tr, details, dd, p";
	const scrolls = (e, to) => { for (; e && e !== to; e = e.parentElement) if (getComputedStyle(e).overflowX !== "visible") return true; return false; };
	const color = (text) => { const n = text.match(/[\d.]+/g).map(Number); return { rgb: n.slice(0, 3), alpha: n.length > 3 ? n[3] : 1 }; };
	const light = ({ rgb }) => rgb.map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = color(getComputedStyle(e).backgroundColor); if (c.alpha > 0.99) return c; } return { rgb: [255, 255, 255] }; };
	for (const e of document.body.querySelectorAll("*")) {
		const box = e.getBoundingClientRect();
		const style = getComputedStyle(e);
		if (!box.width || !box.height || style.visibility === "hidden" || style.clipPath !== "none") continue;
		const of = e.parentElement.closest(card);
		if (of && !e.closest("svg *, thead") && !scrolls(e.parentElement, of)) {
			const room = of.getBoundingClientRect();
			if (box.right > room.right + 1 || box.left < room.left - 1) found.push("overflows: " + name(e) + " in " + name(of) + ": " + Math.round(box.right) + " > " + Math.round(room.right));
		}
		if (!["INPUT", "SELECT"].includes(e.tagName) && style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && e.scrollWidth > e.clientWidth + 1) found.push("cut: " + name(e));
		const own = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
		if (own && !e.closest("svg")) {
			const [a, b] = [light(color(style.color)), light(ground(e))];
			const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (contrast < 4.5) found.push("contrast " + contrast.toFixed(2) + ": " + name(e));
		}
	}
	return found;
})()`

// fits looks at the present page in both schemes at both widths. prepare arranges what is shown after the page was loaded, or is nil.
func (b *tab) fits(address, picture string, prepare func()) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		require.NoError(b.t, err)
		for width, size := range map[int64]string{480: "narrow", 1400: "wide"} {
			b.run(chromedp.EmulateViewport(width, 900))
			b.visit(address)
			if prepare != nil {
				prepare()
			}
			b.picture("fits-"+picture+"-"+size+"-"+scheme, true)
			require.Empty(b.t, evaluate[[]string](b, overflowScript), "%s at %d pixels, %s", address, width, scheme)
		}
	}
}

func TestUI_Narrow_NothingOverflowsItsCard(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.deadlock("stock/sku-31007-tent-two-persons", "stock/sku-31990-camping-lantern")
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/", Prefix: true, Limit: 2, By: "ann@operations.example", Reason: "their new machine is slow", Until: time.Now().Add(time.Hour)}))
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{
		Name: "phones", Members: []string{"phone-for-the-front-desk", "phone-2"}, Out: map[string]string{"phone-2": "display broken, in repair since Monday"}, By: "ann", Reason: "repair",
	}))
	for _, order := range []string{"order-1301", "order-1302", "order-1303", "order-1304"} {
		s.at(50*time.Second, order, lockcore.SharedLimit("partner/acme-international-shipping", 3))
		s.at(40*time.Second, order, lockcore.Pool("phones"))
	}
	s.refresh()
	s.visit(s.address)
	s.shows("order-0987") // the orphan
	s.shows("attempt 7 comes in")
	for name, path := range map[string]string{
		"home": "/", "search": "/?q=stock", "nothing": "/?q=no-such-resource", "resource": "/resource?name=" + url.QueryEscape(boots), "semaphore": "/resource?name=partner%2Facme-international-shipping",
		"pool": "/resource?name=phones", "why": "/why?workflow=order-1060", "waits": "/waits", "orphans": "/orphans", "policies": "/policies", "doctor": "/doctor",
	} {
		s.fits(s.address+path, "ui-"+name, nil)
	}
}

func TestPage_Narrow_NothingOverflowsItsCard(t *testing.T) {
	t.Parallel()
	r := *some()
	long := "tenant-of-the-northern-region/warehouse-hamburg/stock/sku-70431-winter-jacket-blue-extra-large"
	r.Resources = append(r.Resources[:0:0], r.Resources...)
	renamed := r.Resources[1].Name
	r.Resources[1].Name = long
	r.Holds, r.Waits = append(r.Holds[:0:0], r.Holds...), append(r.Waits[:0:0], r.Waits...)
	for i := range r.Holds {
		if r.Holds[i].Resource == renamed {
			r.Holds[i].Resource = long
		}
	}
	for i := range r.Waits {
		if r.Waits[i].Resource == renamed {
			r.Waits[i].Resource = long
		}
	}
	wait, _ := typical(t, &r)
	b := open(t, &r, everything)
	b.fits(evaluate[string](b, `location.href`), "contention", func() { b.selectWait(&r, wait) })
}
