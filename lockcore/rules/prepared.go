package rules

import "time"

// prepared is a view of a document for the questions of many parties. It is made in one pass over the entries. An answer then costs no pass: it looks only at entries of the
// party itself, of its enclosing lock ID, and at as many others as it returns.
type prepared struct {
	d *Document
	// alive and exclusive are the living entries, and those of them that are exclusive.
	alive, exclusive []*Entry
	// counts is, by the key under which a party counts, the number of its living entries.
	counts map[string]int
	// of contains all entries, by lock ID.
	of map[string][]*Entry
}

func (d *Document) prepare() *prepared {
	p := &prepared{d: d, counts: map[string]int{}, of: map[string][]*Entry{}}
	for i := range d.Entries {
		e := &d.Entries[i]
		p.of[e.LockID] = append(p.of[e.LockID], e)
		if !e.Alive(d.At) {
			continue
		}
		p.alive = append(p.alive, e)
		p.counts[e.partyKey()]++
		if e.Mode != Shared {
			p.exclusive = append(p.exclusive, e)
		}
	}
	return p
}

// inTheWay returns the first entries, at most a number of them, that Document.InTheWay returns.
func (p *prepared) inTheWay(of Party, most int) []*Entry {
	among := p.alive
	if of.Mode == Shared {
		among = p.exclusive
	}
	found := p.first(among, of, most)
	if len(found) == 0 && of.Limit > 0 && int64(p.others(of)) >= of.Limit {
		return p.first(p.alive, of, most)
	}
	return found
}

// first returns the first entries that count for a party.
func (p *prepared) first(among []*Entry, of Party, most int) (found []*Entry) {
	for _, e := range among {
		if len(found) == most {
			break
		}
		if e.Counts(of, p.d.At) {
			found = append(found, e)
		}
	}
	return found
}

// others returns the number of other parties that count under the limit of a party.
func (p *prepared) others(of Party) int {
	n := len(p.counts)
	if p.has(of.LockID, func(*Entry) bool { return true }) {
		n--
	}
	if of.Within != of.LockID && p.has(of.Within, of.enclosedBy) && !p.has(of.Within, func(e *Entry) bool { return !of.enclosedBy(e) }) {
		n--
	}
	return n
}

// has reports whether a lock ID has a living entry that meets a condition.
func (p *prepared) has(lockID string, which func(*Entry) bool) bool {
	for _, e := range p.of[lockID] {
		if e.BelongsTo(lockID) && e.Alive(p.d.At) && which(e) {
			return true
		}
	}
	return false
}

func (p *prepared) holds(lockID string, which func(*Entry) bool) bool {
	for _, e := range p.of[lockID] {
		if e.BelongsTo(lockID) && e.Holds() && which(e) {
			return true
		}
	}
	return false
}

// Admits is like Document.Admits.
func (p *prepared) Admits(of Party) bool { return len(p.inTheWay(of, 1)) == 0 }

func (p *prepared) time() time.Time { return p.d.At }

// Waits finds what each waiter of a document waits for. Make it with [Document.Waits].
type Waits struct {
	*prepared
	// before and exclusiveBefore contain, by index of the queue, the index of the nearest waiter ahead that
	// precedes others, and of the nearest such exclusive one; -1 if there is none.
	before, exclusiveBefore []int
	// preceding contains the indices of all waiters that precede others.
	preceding []int
}

// Waits prepares the document for many calls of Blockers.
func (d *Document) Waits() *Waits {
	w := &Waits{prepared: d.prepare(), before: make([]int, len(d.Waiters)), exclusiveBefore: make([]int, len(d.Waiters))}
	last, lastExclusive := -1, -1
	for i := range d.Waiters {
		w.before[i], w.exclusiveBefore[i] = last, lastExclusive
		if !d.Precedes(&d.Waiters[i]) {
			continue
		}
		w.preceding = append(w.preceding, i)
		if last = i; d.Waiters[i].Mode != Shared {
			lastExclusive = i
		}
	}
	return w
}

// Blockers returns what the waiter at an index of the queue waits for: the entries that are in its way, at most
// a number of them. If there are none, and no hold of its own covers it, it is the nearest incompatible waiter
// ahead, or the first one ahead if all are compatible.
func (w *Waits) Blockers(waiter, most int) (entries []*Entry, ahead *Waiter) {
	d := w.d
	one := &d.Waiters[waiter]
	if entries = w.inTheWay(one.Party(), most); len(entries) > 0 || covered(w, one.Party()) {
		return entries, nil
	}
	nearest := w.before
	if one.Mode == Shared {
		nearest = w.exclusiveBefore
	}
	for i := nearest[waiter]; i >= 0; i = nearest[i] {
		if d.Waiters[i].LockID != one.LockID {
			return nil, &d.Waiters[i]
		}
	}
	for _, i := range w.preceding { // all are compatible
		if i >= waiter {
			break
		}
		if d.Waiters[i].LockID != one.LockID {
			return nil, &d.Waiters[i]
		}
	}
	return nil, nil
}
