package rules

import "time"

// prepared is a view of a document for the questions of many parties. It is made in one pass over the entries. An
// answer then costs no pass: it looks only at entries of the party itself, of its enclosing lock ID, and at as many
// others as it returns.
type prepared struct {
	d *Document
	// alive and exclusive are the living entries, and those of them that are exclusive.
	alive, exclusive []*Entry
	// counts is, by the key under which a party counts, the number of its living entries.
	counts map[string]int
	// of contains all entries, by lock ID, and parts those of each part. A lock ID may have thousands of parts.
	of    map[string][]*Entry
	parts map[requestKey][]*Entry
}

func (d *Document) prepare() *prepared {
	p := &prepared{d: d, counts: map[string]int{}, of: map[string][]*Entry{}, parts: map[requestKey][]*Entry{}}
	for i := range d.Entries {
		e := &d.Entries[i]
		key := requestKey{e.LockID, e.Part}
		p.of[e.LockID], p.parts[key] = append(p.of[e.LockID], e), append(p.parts[key], e)
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

// blockers returns the first entries, at most a number of them, that Document.Blockers returns.
func (p *prepared) blockers(of Party, most int) []*Entry {
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
func (p *prepared) Admits(of Party) bool { return len(p.blockers(of, 1)) == 0 }

func (p *prepared) time() time.Time { return p.d.At }
