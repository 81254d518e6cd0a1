package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
)

// data is the part of a page's data that tests use.
type data struct {
	From      float64  `json:"from"`
	LeftOut   []string `json:"leftOut"`
	Strings   []string `json:"strings"`
	Resources []struct {
		Name   string  `json:"name"`
		Queue  []int64 `json:"queue"`
		Counts struct {
			Holds, AllHolds, Waits, AllWaits int
		} `json:"counts"`
	} `json:"resources"`
	Columns      map[string][]struct{ Name, Is string }
	Holds, Waits []any
	Roots        []contention.Root
}

// written returns the page of a report, and its data.
func written(t *testing.T, r *contention.Report, o page.Options) (string, data) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, page.Write(&b, r, o))
	html := b.String()
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(html)
	require.Len(t, found, 2)
	var d data
	require.NoError(t, json.Unmarshal([]byte(found[1]), &d))
	return html, d
}

// rows returns rows of a kind with their columns by name, and strings looked up.
func (d *data) rows(kind string, of any) (all []map[string]any) {
	for _, values := range of.([]any) {
		m := map[string]any{}
		for i, c := range d.Columns[kind] {
			switch v := values.([]any)[i]; c.Is {
			case "string":
				m[c.Name] = d.Strings[int(v.(float64))]
			case "flag":
				m[c.Name] = v == 1.0
			case "steps", "blockers":
				m[c.Name] = d.rows(c.Is, v)
			default:
				m[c.Name] = v
			}
		}
		all = append(all, m)
	}
	return all
}

var start = time.Date(2026, time.November, 20, 9, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func subject(lockID, owner string) contention.Subject {
	return contention.Subject{Resource: "account/0", LockID: lockID, Owner: owner, Mode: "exclusive"}
}

// small contains a wait that two holds block, one of them unread.
func small() *contention.Report {
	d := contention.Distribution{Count: 1, Total: 0.3, P50: 0.3, P95: 0.3, P99: 0.3, Max: 0.3}
	return &contention.Report{
		From: start, To: at(1000), Read: contention.Reading{Files: 1, Spans: 9, LockSpans: 3}, Totals: contention.Totals{Acquisitions: 2, Waited: 1, Wait: d, Hold: d},
		Resources: []contention.Resource{{Name: "account/0", Wait: d, Hold: d, Why: "Its holds are long.", Queue: []contention.QueueLength{{At: at(100), Length: 1}, {At: at(400)}}, LongestQueue: 1}},
		Holds: []contention.Hold{
			{Subject: subject("a", "alice"), Fence: 7, Start: at(200), End: at(400), Outcome: "expired", ExpiredAt: at(300), Blocked: 0.2, Blocks: []int{0},
				Steps: []contention.Step{{Name: "Debit", Part: "3/Debit", Start: at(210), End: at(290)}}},
			{Subject: subject("b", "bob"), Fence: 1 << 60, Start: at(400), End: at(500), Outcome: "released"},
		},
		Waits: []contention.Wait{{
			Subject: subject("b", "bob"), Step: "Credit", Start: at(100), End: at(400), Outcome: "granted", Position: 1, Hold: 1,
			Blockers: []contention.Blocker{
				{Hold: -1, LockID: "z", Owner: "zoe", Fence: 6, From: 0, To: 0.1, Named: true},
				{Hold: 0, LockID: "a", Owner: "alice", Fence: 7, Step: "Debit", From: 0.1, To: 0.3, Last: true},
			},
		}},
	}
}

// queues contains, for each resource, a chain of holds. The next hold waits for each of them, and every other one keeps it waiting longer.
func queues(resources, holds int) *contention.Report {
	r := &contention.Report{From: start, To: at(100 * holds)}
	for n := range resources {
		name, first := fmt.Sprintf("account/%d", n), len(r.Holds)
		total := contention.Distribution{Count: holds, Total: float64(resources - n)}
		r.Resources = append(r.Resources, contention.Resource{Name: name, Wait: total, Hold: total, Queue: []contention.QueueLength{{At: start, Length: 1}}})
		for i := range holds {
			of := contention.Subject{Resource: name, LockID: fmt.Sprintf("%s/%d", name, i), Owner: fmt.Sprintf("owner-%d", i), Mode: "exclusive"}
			r.Holds = append(r.Holds, contention.Hold{Subject: of, Fence: int64(i + 1), Start: at(100 * i), End: at(100*i + 100), Outcome: "released", Blocked: float64(i % 2)})
			wait := contention.Wait{Subject: of, Start: at(max(100*i-100, 0)), End: at(100 * i), Outcome: "granted", Hold: first + i}
			if i > 0 {
				wait.Blockers = []contention.Blocker{{Hold: first + i - 1, To: 0.1, Last: true}}
			}
			r.Waits = append(r.Waits, wait)
		}
		deeper := []contention.Waiter{{Owner: "owner-2", Resource: name, Wait: first + 2}}
		r.Roots = append(r.Roots, contention.Root{Owner: "owner-0", Resource: name, Hold: first, Waiters: []contention.Waiter{{Owner: "owner-1", Resource: name, Wait: first + 1, Waiters: deeper}}})
	}
	return r
}

func TestWrite_Rows_EqualTheReport(t *testing.T) {
	t.Parallel()
	_, d := written(t, small(), page.Options{})
	require.InDelta(t, start.UnixMilli(), d.From, 0)
	require.Len(t, d.Holds, 2)
	holds := d.rows("holds", d.Holds)
	alice, bob := holds[0], holds[1]
	require.Equal(t, "alice", alice["owner"])
	require.Equal(t, "expired", alice["outcome"])
	require.EqualValues(t, 200_000, alice["start"])
	require.EqualValues(t, 300_000, alice["expiredAt"])
	require.EqualValues(t, 7, alice["fence"])
	require.EqualValues(t, 1, alice["blocks"])
	step := alice["steps"].([]map[string]any)[0]
	require.Equal(t, []any{"Debit", "3/Debit", 210_000.0, 290_000.0, false}, []any{step["name"], step["part"], step["start"], step["end"], step["endUnseen"]})
	require.Equal(t, "1152921504606846976", bob["fence"], "a fence beyond what a script's numbers hold is digits")
	require.EqualValues(t, -1, bob["expiredAt"], "a time that is not known")

	wait := d.rows("waits", d.Waits)[0]
	require.Equal(t, "Credit", wait["step"])
	require.EqualValues(t, 1, wait["hold"])
	for i, want := range [][]any{{-1.0, "zoe", 0.0, 100_000.0, true, false}, {0.0, "", 100_000.0, 300_000.0, false, true}} { // the first was not read
		b := wait["blockers"].([]map[string]any)[i]
		require.Equal(t, want, []any{b["hold"], b["owner"], b["from"], b["to"], b["named"], b["last"]})
	}
	require.Equal(t, []int64{100_000, 1, 400_000, 0}, d.Resources[0].Queue)
}

func TestWrite_Verdict_NamesTheBottleneck(t *testing.T) {
	t.Parallel()
	text := func(r *contention.Report) string {
		whole, _ := written(t, r, page.Options{})
		header := regexp.MustCompile(`(?s)<h1>(.*?)<noscript>`).FindStringSubmatch(whole)
		require.Len(t, header, 2)
		return html.UnescapeString(strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(header[1], "")), " "))
	}
	require.Equal(t, "account/0 is the bottleneck: 100 % of all waiting. Its holds are long.", text(small()))
	r := small()
	r.Totals.Wait.Total = 1
	require.Contains(t, text(r), "account/0 is waited for most: 30 % of all waiting, so no single resource is the bottleneck.")
	r.Totals.Wait.Total = 0.3001
	require.Contains(t, text(r), "> 99.9 %", "100 % would not be true")
	r.Resources[0].Wait.Total = 0
	require.Equal(t, "Nobody waited. 2 acquisitions, and none had to queue.", text(r))
	require.Equal(t, "No span of a lock was read. 3 files were read, and 1 234 spans in them.",
		strings.ReplaceAll(text(&contention.Report{Read: contention.Reading{Files: 3, Spans: 1234}}), "\u202f", " "))
}

func TestWrite_OverMaxHolds_ReportsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	r := queues(6, 200)
	whole, d := written(t, r, page.Options{MaxHolds: 150})
	require.Len(t, d.Holds, 150)
	require.LessOrEqual(t, len(d.Waits), 150)
	require.Contains(t, strings.Join(d.LeftOut, "\n"), "150 of 1\u202f200 holds are in this page")
	require.Len(t, r.Holds, 1200)
	require.Less(t, len(whole), 1_200_000)

	first := d.Resources[0]
	require.Equal(t, r.Resources[0].Name, first.Name)
	require.Positive(t, first.Counts.Holds)
	require.Positive(t, first.Counts.Waits)
	last := d.Resources[len(d.Resources)-1]
	require.Zero(t, last.Counts.Holds, "the most waited-for come first")
	require.Positive(t, last.Counts.AllHolds)
	require.Empty(t, last.Queue)

	leftOut := 0
	for _, w := range d.rows("waits", d.Waits) {
		for _, b := range w["blockers"].([]map[string]any) {
			require.Less(t, int(b["hold"].(float64)), len(d.Holds))
			if b["hold"] == -2.0 {
				leftOut++
			}
		}
	}
	require.Positive(t, leftOut)
	var waiters func(list []contention.Waiter)
	waiters = func(list []contention.Waiter) {
		for _, w := range list {
			require.Less(t, w.Wait, len(d.Waits))
			waiters(w.Waiters)
		}
	}
	for _, root := range d.Roots {
		require.Less(t, root.Hold, len(d.Holds))
		waiters(root.Waiters)
	}
	_, all := written(t, r, page.Options{})
	require.Empty(t, all.LeftOut)
	require.Len(t, all.Holds, len(r.Holds))
}

func TestWrite_ManyBlockers_KeepsLongestAndLast(t *testing.T) {
	t.Parallel()
	r := small()
	w := &r.Waits[0]
	w.Blockers = nil
	for i := range 100 {
		w.Blockers = append(w.Blockers, contention.Blocker{Hold: 0, From: float64(i), To: float64(i) + 0.01 + float64(i%10), Last: i == 90})
	}
	_, d := written(t, r, page.Options{})
	wait := d.rows("waits", d.Waits)[0]
	blockers := wait["blockers"].([]map[string]any)
	require.Len(t, blockers, 25)
	require.EqualValues(t, 75, wait["moreBlockers"])
	var froms []float64
	last := false
	for _, b := range blockers {
		froms = append(froms, b["from"].(float64))
		last = last || b["last"].(bool)
	}
	require.IsIncreasing(t, froms, "in the order of time")
	require.True(t, last, "the last, though it was short")
}

func TestWrite_Page_UsesNoNetwork(t *testing.T) {
	t.Parallel()
	text, _ := written(t, small(), page.Options{TraceURL: "http://127.0.0.1:16686/trace/{trace}?uiFind={span}"})
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	require.Len(t, policy, 2)
	allowed := strings.NewReplacer("&#39;", "'", "&#43;", "+", "&#34;", `"`).Replace(policy[1])
	require.True(t, strings.HasPrefix(allowed, "default-src 'none'; "), allowed)
	require.NotContains(t, allowed, "unsafe")
	require.NotContains(t, allowed, "http")

	// The policy allows only the page's own scripts and style.
	elements := regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(text, -1)
	require.Len(t, elements, 3)
	for _, e := range elements {
		sum := sha256.Sum256([]byte(e[2]))
		require.Contains(t, allowed, e[1]+"-src")
		require.Contains(t, allowed, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		require.NotContains(t, e[2], "<!--", "would change how the script's end is found")
	}
	require.NotRegexp(t, `(?i)<(script|img|iframe|link|object|embed)[^>]*\b(src|href)=["']?(https?:)?//`, text)
}

func TestWrite_HostileNames_StayText(t *testing.T) {
	t.Parallel()
	const evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028&\xff"
	r := small()
	r.Resources[0].Name, r.Resources[0].Why = evil, evil
	for i := range r.Holds {
		r.Holds[i].Resource, r.Holds[i].Owner = evil, evil
	}
	r.Waits[0].Resource, r.Waits[0].Step = evil, evil
	text, d := written(t, r, page.Options{Title: evil})
	require.Len(t, d.Holds, 2)
	require.Equal(t, 3, strings.Count(text, "</script>"), "those of the page itself")
	require.NotContains(t, text, "<img")
	require.NotContains(t, text, "alert(1)</")
	require.Contains(t, d.Strings, strings.ToValidUTF8(evil, "\ufffd"))
}

func TestWrite_InvalidOptions_AreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []page.Options{
		{MaxHolds: -1}, {TraceURL: "javascript:alert('{trace}')"}, {TraceURL: "//host/{trace}"}, {TraceURL: "http://host/trace"}, {TraceURL: "data:text/html,{trace}"},
	} {
		var b bytes.Buffer
		require.ErrorContains(t, page.Write(&b, small(), o), "page: option ", "%+v", o)
		require.Zero(t, b.Len())
	}
}

// broken is a writer that fails.
type broken struct{}

var errFull = errors.New("no space left")

func (broken) Write([]byte) (int, error) { return 0, errFull }

func TestWrite_FailingWriter_ReturnsItsError(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, page.Write(broken{}, small(), page.Options{}), errFull)
}

func TestWrite_EmptyReport_IsAPage(t *testing.T) {
	t.Parallel()
	_, d := written(t, &contention.Report{}, page.Options{})
	require.NotNil(t, d.Holds)
	require.NotNil(t, d.Waits)
	require.NotNil(t, d.Resources)
}

// The library must be the output of build/build.sh.
func TestLibrary_EqualsItsChecksum(t *testing.T) {
	t.Parallel()
	library, err := os.ReadFile("charts/echarts.js")
	require.NoError(t, err)
	want, err := os.ReadFile("charts/echarts.js.sha256")
	require.NoError(t, err)
	require.Equal(t, strings.Fields(string(want))[0], fmt.Sprintf("%x", sha256.Sum256(library)), "changed by hand? build/build.sh makes it, and its checksum")

	var pinned struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	manifest, err := os.ReadFile("build/package.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(manifest, &pinned))
	require.Contains(t, string(library[:400]), "Apache ECharts "+pinned.Dependencies["echarts"]+" (Apache-2.0", "built from the version that package.json names")
	lock, err := os.ReadFile("build/package-lock.json")
	require.NoError(t, err)
	require.NotContains(t, string(lock), `"resolved"`, "where a package was fetched from depends on the machine; its checksum does not")
	for _, name := range []string{"LICENSE-echarts", "NOTICE-echarts", "LICENSE-zrender", "LICENSE-d3"} {
		require.FileExists(t, "charts/"+name)
	}
}

func TestWrite_Page_HasAllScripts(t *testing.T) {
	t.Parallel()
	text, _ := written(t, small(), page.Options{})
	entries, err := os.ReadDir("assets")
	require.NoError(t, err)
	for _, e := range entries {
		asset, err := os.ReadFile("assets/" + e.Name())
		require.NoError(t, err)
		require.LessOrEqual(t, bytes.Count(asset, []byte("\n")), 350, e.Name())
		if strings.HasSuffix(e.Name(), ".js") {
			require.Contains(t, text, string(asset), e.Name())
			require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`, string(asset), e.Name())
		}
	}
}
