package update

import (
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// mostCached bounds the estimated size in bytes of the documents of lines without a user.
const mostCached = 16 << 20

// use returns the line of a resource, with one more user. The caller holds ls.mu.
func (ls *Lines) use(name string) *activeLine {
	e := ls.lines[name]
	if e == nil {
		e = &activeLine{line: Line{Name: name, Process: ls.process, Settings: ls.settings}, wake: make(chan struct{}, 1)}
		ls.lines[name] = e
	}
	if e.cache != nil {
		ls.recent.Remove(e.cache)
		ls.cached -= e.bytes
		e.cache = nil
	}
	e.users++
	return e
}

// leave removes one user from a line. A line without a user stays as a cache of its document as long as
// there is room. The caller holds e.mu and ls.mu.
func (ls *Lines) leave(e *activeLine) {
	if e.users--; e.users > 0 || ls.debtors[e] {
		return
	}
	if e.bytes = size(e.line.doc); !e.line.known || e.bytes > mostCached/16 {
		delete(ls.lines, e.line.Name)
		return
	}
	ls.cached += e.bytes
	e.cache = ls.recent.PushFront(e)
	for ls.cached > mostCached {
		oldest := ls.recent.Back().Value.(*activeLine)
		ls.recent.Remove(oldest.cache)
		ls.cached -= oldest.bytes
		delete(ls.lines, oldest.line.Name)
	}
}

// size estimates the size of a document in memory, in bytes.
func size(d *rules.Document) int {
	const entry, waiter, record = 600, 400, 200
	if d == nil {
		return record
	}
	records := len(d.Evidence) + len(d.Releases) + len(d.Bars) + len(d.Forced) + len(d.Missed)
	for i := range d.Entries {
		records += len(d.Entries[i].Bars)
	}
	return 2*record + entry*len(d.Entries) + waiter*len(d.Waiters) + record*records
}

// Offer gives a document that was read elsewhere to the line of its resource, which may use it as its
// cache. It does not keep lines that have no user.
func (ls *Lines) Offer(d *rules.Document) {
	ls.mu.Lock()
	e := ls.lines[d.ID]
	if e == nil || e.cache != nil {
		ls.mu.Unlock()
		return
	}
	ls.mu.Unlock()
	ls.handle(e, Offered{d})
}

// Adopt records the collection's identity, as a read from the primary that was sent at the local time sent has it. If
// the collection is of another generation, all cached documents are dropped. An identity that was read before the
// known one is ignored.
func (ls *Lines) Adopt(now *rules.Identity, sent time.Time) {
	ls.mu.Lock()
	before := ls.identity
	if sent.Before(ls.identified) {
		ls.mu.Unlock()
		return
	}
	policiesChanged := !ls.identified.IsZero() && before.PolicyVersion != now.PolicyVersion
	ls.identity, ls.identified = *now, sent
	var lines []*activeLine
	if before.ID != "" && store.GenerationOf(&before) != store.GenerationOf(now) {
		lines = slices.Collect(maps.Values(ls.lines))
	} else {
		before.ID = ""
	}
	ls.mu.Unlock()
	for _, e := range lines {
		ls.handle(e, Outdated{})
	}
	if policiesChanged && ls.PoliciesChanged != nil {
		ls.PoliciesChanged()
	}
	if before.ID != "" && ls.Changed != nil {
		ls.Changed(&before, now)
	}
}

// Identity returns the collection's identity, and the time at which the read was sent; zero if there was none.
func (ls *Lines) Identity() (rules.Identity, time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.identity, ls.identified
}

func (ls *Lines) find(name string) *activeLine {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.lines[name]
}
