package contention

import (
	"encoding/hex"
	"slices"
)

// sym stands for a text: there are few different ones, and many spans. The empty text is 0.
type sym uint32

// symbols are the texts that were seen, and the blockers, of which many spans name the same.
type symbols struct {
	ids      map[string]sym
	texts    []string
	places   map[blocker]int32
	blockers []blocker
}

func newSymbols() *symbols {
	return &symbols{ids: map[string]sym{"": 0}, texts: []string{""}, places: map[blocker]int32{}}
}

// finish is called when there are no more to come.
func (s *symbols) finish() { s.ids, s.places = nil, nil }

func (s *symbols) sym(text string) sym {
	id, ok := s.ids[text]
	if !ok {
		id = sym(len(s.texts)) //nolint:gosec // 4,000 million different texts do not fit into memory
		s.ids[text] = id
		s.texts = append(s.texts, text)
	}
	return id
}

func (s *symbols) text(id sym) string { return s.texts[id] }

// record is a lock span, kept small: there may be millions.
type record struct {
	trace      traceID
	id         spanID
	start, end int64
	texts      [texts]sym
	position   int32
	limited    bool
	fence      int64
	hold       int64
	expired    int64
	drained    int64
	// blockers are, of a wait, the places of those named by events; the last one by the span's own attributes, if hasLast.
	blockers []int32
	hasLast  bool
}

// blocker is a hold that a span names.
type blocker struct {
	lockID, owner sym
	fence         int64
	trace         traceID
	span          spanID
}

// key names a hold.
type key struct {
	resource, lockID sym
	fence            int64
}

// request names a part's request for a resource.
type request struct{ resource, lockID, part, order sym }

// party is a lock ID at a resource.
type party struct{ resource, lockID sym }

func (r *record) request() request {
	return request{r.texts[textResource], r.texts[textLockID], r.texts[textPart], r.texts[textOrder]}
}

func (r *record) party() party { return party{r.texts[textResource], r.texts[textLockID]} }

func (r *record) key(fence int64) key {
	return key{r.texts[textResource], r.texts[textLockID], fence}
}

// keep makes a record of a span.
func (s *symbols) keep(sp *span) record {
	r := record{
		trace: sp.trace, id: sp.id, start: sp.start, end: max(sp.end, sp.start),
		position: int32(max(min(sp.position, 1<<30), 0)),
		limited:  sp.limit > 0,
		fence:    sp.fence, hold: sp.hold, expired: sp.expired, drained: sp.drained,
	}
	for i, t := range sp.texts {
		r.texts[i] = s.sym(t)
	}
	if sp.kind != kindWait {
		return r
	}
	r.hasLast = sp.last.lockID != ""
	if n := len(sp.blockers); n > 0 || r.hasLast {
		if !r.hasLast || !slices.Contains(sp.blockers, sp.last) {
			n++
		}
		r.blockers = make([]int32, 0, n)
		for i := range sp.blockers {
			if r.hasLast && sp.blockers[i] == sp.last { // most waits name but one, and say so twice
				continue
			}
			r.blockers = append(r.blockers, s.blocker(&sp.blockers[i]))
		}
		if r.hasLast {
			r.blockers = append(r.blockers, s.blocker(&sp.last))
		}
	}
	return r
}

// blocker is its place.
func (s *symbols) blocker(b *blockedBy) int32 {
	kept := blocker{lockID: s.sym(b.lockID), owner: s.sym(b.owner), fence: b.fence, trace: b.trace, span: b.span}
	place, ok := s.places[kept]
	if !ok {
		place = int32(len(s.blockers)) //nolint:gosec // 2,000 million do not fit into memory
		s.places[kept] = place
		s.blockers = append(s.blockers, kept)
	}
	return place
}

// hexIDs are the IDs as text, empty if they are zero.
func hexIDs(t traceID, s spanID) (trace, span string) {
	if t == (traceID{}) {
		return "", ""
	}
	var b [48]byte
	hex.Encode(b[:32], t[:])
	hex.Encode(b[32:], s[:])
	both := string(b[:])
	if s == (spanID{}) {
		return both[:32], ""
	}
	return both[:32], both[32:]
}
