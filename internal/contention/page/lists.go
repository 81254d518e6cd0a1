package page

import (
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/contention"
)

// lists copies what refers to holds and waits, with the page's indexes.
func (e *encoder) lists() {
	e.doc.Chains, e.doc.Overlong, e.doc.Losses = []contention.Chain{}, []contention.Overlong{}, []contention.Loss{}
	for _, c := range first(e.report.Chains) {
		c.Links = slices.Clone(c.Links)
		for i := range c.Links {
			c.Links[i].Wait, c.Links[i].Hold = at(e.part.waitAt, c.Links[i].Wait), at(e.part.holdAt, c.Links[i].Hold)
		}
		e.doc.Chains = append(e.doc.Chains, c)
	}
	for _, o := range first(e.report.Overlong) {
		// Without its hold nothing could be said of it.
		if o.Hold = at(e.part.holdAt, o.Hold); o.Hold >= 0 {
			e.doc.Overlong = append(e.doc.Overlong, o)
		}
	}
	for _, l := range first(e.report.Losses) {
		l.Hold = at(e.part.holdAt, l.Hold)
		e.doc.Losses = append(e.doc.Losses, l)
	}
}
