package ui

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// view is the data of a page.
type view struct {
	Title string
	// List is set for the list of resources. Query filters it, and All counts the resources that match.
	List      bool
	Query     string
	All       int
	Resources []inspect.Resource
	Resource  *inspect.Resource
	// Recent has the holds and waits on the resource that were seen to end since Since.
	Recent    []ended
	Since     time.Time
	Why       *inspect.Why
	Forest    []*inspect.Node
	Deadlocks []party.Deadlock
	// Problem explains why there is nothing to see.
	Problem string
	At      time.Time
}

// name returns the name of a resource, or its hash.
func (s *server) name(resource string) string {
	if !s.HashNames {
		return resource
	}
	return hashOf(resource)[:12]
}

// describe describes an entry, with the name of its resource or the hash of that.
func (s *server) describe(e inspect.Entry) string {
	e.Resource = s.name(e.Resource)
	return e.String()
}

func (s *server) showLink(resource string) string {
	return "/resource?name=" + url.QueryEscape(s.name(resource))
}

func whyLink(p inspect.Party) string { return "/why?workflow=" + url.QueryEscape(p.Name) }

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

// ring is the drawing of a deadlock: parties on an ellipse, and an arrow from each to the party that it waits for.
type ring struct {
	Width, Height int
	Parties       []ringParty
	Arrows        []string
}

type ringParty struct {
	X, Y   float64
	Name   string
	Victim bool
}

func (s *server) ringOf(d party.Deadlock) ring {
	const width, height, margin = 640, 260, 40.0
	n := len(d.Waits)
	r := ring{Width: width, Height: height}
	at := func(i float64) (x, y float64) {
		angle := 2*math.Pi*i/float64(n) - math.Pi/2
		return width/2 + math.Cos(angle)*(width/2-4*margin), height/2 + math.Sin(angle)*(height/2-margin)
	}
	const gap = 0.1 // at both ends of an arrow, as a part of the way
	for i, w := range d.Waits {
		x, y := at(float64(i))
		r.Parties = append(r.Parties, ringParty{X: x, Y: y, Name: s.OwnerName(w.Owner), Victim: i == d.Victim})
		fromX, fromY := at(float64(i) + gap)
		midX, midY := at(float64(i) + 0.5)
		toX, toY := at(float64(i) + 1 - gap)
		r.Arrows = append(r.Arrows, fmt.Sprintf("M%.1f %.1fQ%.1f %.1f %.1f %.1f", fromX, fromY, midX, midY, toX, toY))
	}
	return r
}
