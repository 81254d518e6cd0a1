package browser

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	contentionpage "github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
)

// tab is a page in a browser of its own, with no network except the site under test, if there is one. The end of the test checks its
// requests and errors.
type tab struct {
	t    *testing.T
	ctx  context.Context
	site string

	mu         sync.Mutex
	requests   []string
	complaints []string
}

// open writes the report's page and opens it.
func open(t *testing.T, r *contention.Report, o contentionpage.Options) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "contention.html")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, contentionpage.Write(f, r, o))
	require.NoError(t, f.Close())

	b := start(t, "")
	b.visit("file://" + file)
	return b
}

// start starts a browser, with an empty profile that chromedp removes at the end.
func start(t *testing.T, site string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.DisableGPU, chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.WindowSize(1400, 900), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // chromium refuses to be root in its sandbox
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	ctx, giveUp := context.WithTimeout(ctx, 4*time.Minute)
	b := &tab{t: t, ctx: ctx, site: site}
	t.Cleanup(func() {
		b.mu.Lock()
		requests, complaints := b.requests, b.complaints
		b.mu.Unlock()
		giveUp()
		closeTab()
		stop() // waits for the browser's end
		require.Empty(t, requests, "the page asked the network for something")
		require.Empty(t, complaints, "the browser complained")
	})
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	if site == "" {
		_, err = chromedp.Call(ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: true})
		require.NoError(t, err)
	}
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// chromium returns the browser's path. The test fails without a browser: the page is made for one.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.FailNow(t, "no chromium", "this test needs the browser chromium, or Chrome: on Debian, as root, .ci/run browser installs it (apt-get install chromium)")
	return ""
}

// listen records requests other than for local files, and errors in the console.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u := e.Request.URL
		if own := b.site != "" && strings.HasPrefix(u, b.site); !own && !strings.HasPrefix(u, "file:") && !strings.HasPrefix(u, "data:") && u != "about:blank" {
			b.requests = append(b.requests, u)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.complaints = append(b.complaints, string(e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.complaints = append(b.complaints, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		b.complaints = append(b.complaints, "a dialog: "+e.Message)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// get runs an action that has a result.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, action)
	require.NoError(b.t, err)
	return v
}

// visit opens a page and waits until it is complete.
func (b *tab) visit(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
}

// evaluate returns the value of a script.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// click clicks on the only element that a selector finds.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.run(chromedp.WaitVisible(chromedp.CSS(selector)))
	require.Equal(b.t, 1, evaluate[int](b, "document.querySelectorAll(`"+selector+"`).length"), selector)
	b.run(chromedp.ScrollIntoView(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// details waits until the panel shows an item, and returns its text.
func (b *tab) details(item string) string {
	b.t.Helper()
	b.run(chromedp.WaitVisible(chromedp.CSS(`#details [data-selected="` + item + `"]`)))
	return get(b, chromedp.Text(chromedp.CSS("#details")))
}

// picture saves a screenshot if LOCKSTEP_SCREENSHOTS names a folder.
func (b *tab) picture(name string, whole bool) {
	b.t.Helper()
	folder := os.Getenv("LOCKSTEP_SCREENSHOTS")
	if folder == "" {
		return
	}
	take := chromedp.CaptureScreenshot()
	if whole {
		take = chromedp.FullScreenshot(100)
	}
	require.NoError(b.t, os.MkdirAll(folder, 0o750))
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), smaller(b.t, get(b, take)), 0o600))
}

// smaller reduces a picture to 256 colors: the most frequent ones that differ visibly.
func smaller(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	require.NoError(t, err)
	count := map[color.RGBA]int{}
	size := from.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			count[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	to := image.NewPaletted(size, nil)
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) }) {
		r, g, b, _ := c.RGBA()
		near := func(other color.Color) bool {
			otherR, otherG, otherB, _ := other.RGBA()
			return max(r, otherR)-min(r, otherR)+max(g, otherG)-min(g, otherG)+max(b, otherB)-min(b, otherB) < 24*0x101
		}
		if len(to.Palette) < 256 && !slices.ContainsFunc(to.Palette, near) {
			to.Palette = append(to.Palette, c)
		}
	}
	draw.Draw(to, size, from, size.Min, draw.Src)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to))
	return out.Bytes()
}
