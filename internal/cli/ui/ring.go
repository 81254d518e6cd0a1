package ui

import (
	"fmt"
	"math"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// ring is a deadlock as a picture: its parties on a circle, and an arrow from each to the one that it
// waits for.
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
	const gap = 0.1 // of the way between two parties, at both ends
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
