package ui

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// view is the data of a page.
type view struct {
	Title string
	// Page is the path of a page that the navigation leads to.
	Page string
	// Query filters the resources, and All counts the matches.
	Query     string
	All       int
	Resources []inspect.Resource
	// Types has the workflow types of holders, by run.
	Types map[string]string
	// Alarms are those of the home page.
	Alarms   *alarms
	Resource *inspect.Resource
	// Holders are those of Resource, with advice. Above has the root blockers of a resource's holders, or of the party in Why.
	Holders []*inspect.Node
	Above   []inspect.Group
	Why     *inspect.Why
	// Forest has all waits.
	Forest    []inspect.Group
	Deadlocks []lockcore.Deadlock
	Orphans   []inspect.Orphan
	Findings  []inspect.Finding
	Policies  *inspect.Policies
	// Policy applies to Resource, and Pool is the pool that it makes, if any.
	Policy *lockcore.Policy
	Pool   *inspect.Pool
	// Problem explains why there is nothing to see.
	Problem string
	At      time.Time
}

func (s *server) functions() template.FuncMap {
	return template.FuncMap{
		"short": inspect.Short, "count": table.Count[int], "owner": s.OwnerName, "ring": s.ringOf, "key": keyOf,
		"before":     func(e inspect.Entry) string { before, _ := e.Around(); return before },
		"after":      func(e inspect.Entry) string { _, after := e.Around(); return after },
		"resource":   s.ResourceName,
		"waiting":    func(n *inspect.Node) int { return len(n.Waiting) + n.More },
		"time":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"policyName": func(p lockcore.Policy) string { return inspect.PolicyName(&p) },
		"policyText": func(p lockcore.Policy) string { return inspect.PolicyText(&p) },
		"poolLink":   func(p lockcore.Policy) string { return "/resource?name=" + url.QueryEscape(p.Name) }, // which a discreet site has hashed
		"words":      words, "command": command,
		"show": s.showLink, "why": whyLink, "temporal": s.temporalLink,
		"incomplete": func(command string) bool { return strings.HasSuffix(command, inspect.Reason) },
		"unfinished": func(command string) string { return strings.TrimSuffix(command, inspect.Reason) },
		"reason":     func() string { return inspect.Reason },
	}
}

var duration = regexp.MustCompile(`(\d) (d|h|min|s|ms)\b`)

// words returns a text as HTML, as command does. Its durations are not broken before their units.
func words(text string) template.HTML {
	return template.HTML(duration.ReplaceAllString(string(command(text)), "$1&nbsp;$2")) //nolint:gosec // command escapes the text
}

// command returns a text to copy as HTML. Its words are not broken at hyphens and slashes, which names and commands are full of.
func command(text string) template.HTML {
	list := strings.Split(text, " ")
	for i, word := range list {
		list[i] = template.HTMLEscapeString(word)
		if strings.ContainsAny(word, "-/") {
			list[i] = `<span class="name">` + list[i] + `</span>`
		}
	}
	return template.HTML(strings.Join(list, " ")) //nolint:gosec // each word is escaped
}

func (s *server) showLink(resource string) string {
	return "/resource?name=" + url.QueryEscape(s.ResourceName(resource))
}

// whyLink returns the address of the page about a party, by its name.
func whyLink(name string) string { return "/why?workflow=" + url.QueryEscape(name) }

// keyOf identifies an entry in a page and in its next version.
func keyOf(e inspect.Entry) string {
	return hashOf(strings.Join([]string{e.Resource, e.LockID, e.Part}, "\x00"))[:12]
}

// temporalLink returns the address of a workflow in Temporal's UI, or the empty string.
func (s *server) temporalLink(p inspect.Party, run string) string {
	if s.TemporalUI == "" || p.Workflow == "" || p.Namespace != s.Temporal.NamespaceID {
		return ""
	}
	link := strings.TrimSuffix(s.TemporalUI, "/") + "/namespaces/" + url.PathEscape(s.Temporal.Namespace) + "/workflows/" + url.PathEscape(p.Workflow)
	if run != "" {
		link += "/" + url.PathEscape(run)
	}
	return link
}

// ring is the drawing of a deadlock: parties in a circle, and an arrow from each to the party that it waits for, with the
// resource.
type ring struct {
	Width, Height int
	Parties       []box
	Arrows        []arrow
}

// box is a party. X and Y are its center.
type box struct {
	X, Y, Left, Top, Width, Height float64
	Name, Text                     string
	Victim                         bool
}

// arrow is a wait. Anchor is the end of the label that is at X.
type arrow struct {
	Path, Anchor   string
	X, Y           float64
	Resource, Text string
}

// maxDrawn is the number of parties up to which a deadlock is drawn.
const maxDrawn = 4

// ringOf draws a deadlock, or returns nil if it has too many parties.
func (s *server) ringOf(d lockcore.Deadlock) *ring {
	n := len(d.Waits)
	if n > maxDrawn {
		return nil
	}
	const width, letter = 580, 7.6
	radius := 70 + 22*float64(n)
	r := &ring{Width: width}
	const centerX, margin = width / 2, 40
	centerY := radius + margin
	for i, w := range d.Waits {
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		b := box{X: centerX + math.Cos(angle)*(width/2-110), Y: centerY + math.Sin(angle)*radius, Height: 34, Name: s.OwnerName(w.Owner), Victim: i == d.Victim}
		b.Text = table.Shorten(b.Name, 24)
		if b.Width = 24 + letter*float64(len([]rune(b.Text))); b.Victim {
			b.Height, b.Width = 52, max(b.Width, 160)
		}
		b.Left, b.Top = b.X-b.Width/2, b.Y-b.Height/2
		r.Parties = append(r.Parties, b)
		r.Height = max(r.Height, int(b.Top+b.Height)+30)
	}
	for i, w := range d.Waits {
		from, to := r.Parties[i], r.Parties[(i+1)%n]
		side := 0.0 // of two parties, each has its own side
		if n == 2 {
			side = float64(1-2*i) * 60
		}
		fromX, fromY := from.edge(to.X-from.X+side, to.Y-from.Y)
		toX, toY := to.edge(from.X-to.X+side, from.Y-to.Y)
		a := arrow{X: (fromX+toX)/2 + side/2, Y: (fromY + toY) / 2, Resource: w.Resource, Text: table.Shorten(s.ResourceName(w.Resource), 41-5*n)}
		a.Path = fmt.Sprintf("M%.1f %.1fQ%.1f %.1f %.1f %.1f", fromX, fromY, (fromX+toX)/2+side, a.Y, toX, toY)
		switch off := a.X - centerX; {
		case math.Abs(off) < 20 && n > 2:
			a.Anchor, a.Y = "middle", a.Y+math.Copysign(40, a.Y-centerY) // beyond the boxes
		case off > 0:
			a.Anchor, a.X = "start", a.X+14
		default:
			a.Anchor, a.X = "end", a.X-14
		}
		r.Arrows = append(r.Arrows, a)
	}
	return r
}

// edge returns the point outside of the box where an arrow in a direction begins.
func (b *box) edge(x, y float64) (edgeX, edgeY float64) {
	const gap = 5
	scale := min((b.Width/2+gap)/math.Abs(x), (b.Height/2+gap)/math.Abs(y)) // one of them may be infinite
	return b.X + x*scale, b.Y + y*scale
}
