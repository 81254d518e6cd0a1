package inspect

import (
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// graph is who waits for what, as it was listed.
type graph struct {
	resources map[string]*Resource
	// waits are by owner.
	waits map[string][]*Entry
}

func graphOf(resources []Resource) *graph {
	g := &graph{resources: map[string]*Resource{}, waits: map[string][]*Entry{}}
	for i := range resources {
		r := &resources[i]
		g.resources[r.Name] = r
		for j := range r.Waiters {
			w := &r.Waiters[j]
			g.waits[w.Party.Owner] = append(g.waits[w.Party.Owner], w)
		}
	}
	return g
}

// link is one step from a wait to an entry that is in its way.
type link struct{ wait, hold *Entry }

// inTheWay lists the entries that keep a waiter out, as the rules by which locks are granted say.
func (g *graph) inTheWay(w *Entry) (out []*Entry) {
	r := g.resources[w.Resource]
	for _, o := range w.InTheWay {
		entries := r.Holders
		if o.State == lockcore.StateWaiting {
			entries = r.Waiters
		}
		for i := range entries {
			e := &entries[i]
			if e.LockID == o.LockID && e.State == o.State && (o.Part == "" || e.Part == o.Part) {
				out = append(out, e)
			}
		}
	}
	return out
}

// keeps reports whether the entry is a hold that is kept between steps.
func (e *Entry) keeps() bool { return e.State == lockcore.StateHolding && e.HoldTTL != 0 }

// tie is what an entry stands as long as: all waits of an owner, those of one lock ID, or one wait;
// or ends names the entry, which ends by itself.
type tie struct {
	owner, lockID string
	place, ends   *Entry
}

// tieOf is what an entry that is in the way is tied to. A party of plain Go is one thread of work,
// and so is a workflow with what it keeps; a step waits for nothing but the rest of its own locks.
func tieOf(h *Entry) tie {
	switch {
	case h.State == lockcore.StateWaiting:
		return tie{place: h}
	case h.State != lockcore.StateHolding:
		return tie{ends: h}
	case h.Run == "", h.keeps() && h.Party.Step == "":
		return tie{owner: h.Party.Owner}
	default:
		return tie{lockID: h.LockID}
	}
}

// tiesTo are the ties by which entries stand as long as a wait does.
func tiesTo(w *Entry) []tie {
	return []tie{{owner: w.Party.Owner}, {lockID: w.LockID}, {place: w}}
}

// tied lists the waits as long as which an entry stands.
func (g *graph) tied(h *Entry) (waits []*Entry) {
	t := tieOf(h)
	switch {
	case t.place != nil:
		return []*Entry{t.place}
	case t.ends != nil:
		return nil
	}
	for _, w := range g.waits[h.Party.Owner] {
		if t.owner != "" || t.lockID == w.LockID {
			waits = append(waits, w)
		}
	}
	return waits
}
