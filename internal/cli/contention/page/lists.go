package page

import (
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// lists copies what refers to holds and waits, with the page's indexes.
func (e *encoder) lists() {
	e.doc.Roots, e.doc.Overlong, e.doc.Losses = []contention.Root{}, []contention.Overlong{}, []contention.Loss{}
	for _, root := range first(e.report.Roots) {
		root.Hold, root.Waiters = at(e.part.holdAt, root.Hold), e.waiters(root.Waiters)
		e.doc.Roots = append(e.doc.Roots, root)
	}
	for _, l := range e.report.Load {
		e.doc.Load = append(e.doc.Load, loadAt{millis(l.At), l.Held, l.Waiting})
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

func (e *encoder) waiters(list []contention.Waiter) []contention.Waiter {
	list = slices.Clone(list)
	for i := range list {
		list[i].Wait, list[i].Waiters = at(e.part.waitAt, list[i].Wait), e.waiters(list[i].Waiters)
	}
	return list
}
