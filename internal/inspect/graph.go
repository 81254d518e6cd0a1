package inspect

import (
	"cmp"
	"strings"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// graph is who waits for what, as it was listed. Its rules are those by which lockcore grants locks,
// and finds deadlocks.
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

// inTheWay lists what keeps a waiter out: entries of other lock IDs that its mode does not go with,
// or all holds under its limit; if there are none, a place before its own in the queue, unless it
// joins what its lock ID holds. What its own workflow keeps around a step is in the step's way only
// as long as another step runs in it, which is not listed: it comes last.
func (g *graph) inTheWay(w *Entry) []*Entry {
	r := g.resources[w.Resource]
	var out, sharing, around []*Entry
	lockIDs := map[string]bool{}
	joins := false
	for i := range r.Holders {
		h := &r.Holders[i]
		compatible := h.Mode != lockcore.ModeExclusive && w.Mode != lockcore.ModeExclusive
		switch {
		case h.LockID == w.LockID:
			joins = joins || h.State == lockcore.StateHolding && (h.Mode == lockcore.ModeExclusive || h.Mode == w.Mode)
		case h.ExpiresIn <= 0:
		case h.keeps() && strings.HasPrefix(w.LockID, h.LockID+"/"):
			if !compatible {
				around = append(around, h)
			}
		case !compatible:
			out = append(out, h)
		default:
			sharing = append(sharing, h)
			lockIDs[h.LockID] = true
		}
	}
	if len(out) == 0 && w.Limit > 0 && len(lockIDs) >= w.Limit {
		out = sharing
	}
	if len(out) > 0 || joins {
		return out
	}
	var first, nearest *Entry // before it: the first of all, and the nearest that it could not hold beside
	for i := range r.Waiters {
		e := &r.Waiters[i]
		if e.LockID == w.LockID || e.Overdue || e.Position >= w.Position {
			continue
		}
		first = cmp.Or(first, e)
		if e.Mode == lockcore.ModeExclusive || w.Mode == lockcore.ModeExclusive {
			nearest = e
		}
	}
	if before := cmp.Or(nearest, first); before != nil {
		return []*Entry{before}
	}
	return around
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
