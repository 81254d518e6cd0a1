package contention

import (
	"math"
	"strconv"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

type (
	traceID [16]byte
	spanID  [8]byte
)

// kind is a lock span's name.
type kind uint8

const (
	kindAcquire kind = iota + 1
	kindWait
	kindHold
	kindRenew
	kindLeave
	kindRelease
	kindDeadlock
	// kindLost is no span but an event, on the span of the holder.
	kindLost
	kinds
)

var kindOf = map[string]kind{
	telemetry.SpanAcquire:  kindAcquire,
	telemetry.SpanWait:     kindWait,
	telemetry.SpanHold:     kindHold,
	telemetry.SpanRenew:    kindRenew,
	telemetry.SpanLeave:    kindLeave,
	telemetry.SpanRelease:  kindRelease,
	telemetry.SpanDeadlock: kindDeadlock,
}

// text is an attribute that is kept as text.
type text uint8

const (
	textResource text = iota
	textLockID
	textOwner
	textMode
	textPart
	textOrder
	textOutcome
	textReason
	textHost
	textEndedBy
	textCycle
	texts
)

var textOf = map[string]text{
	telemetry.Resource: textResource,
	telemetry.LockID:   textLockID,
	telemetry.Owner:    textOwner,
	telemetry.Mode:     textMode,
	telemetry.Part:     textPart,
	telemetry.Order:    textOrder,
	telemetry.Outcome:  textOutcome,
	telemetry.Reason:   textReason,
	telemetry.Host:     textHost,
	telemetry.EndedBy:  textEndedBy,
	telemetry.Cycle:    textCycle,
}

// span is a lock span as either format tells it, before it is kept.
type span struct {
	kind       kind
	trace      traceID
	id         spanID
	start, end int64 // nanoseconds since 1970
	texts      [texts]string
	fence      int64
	hold       int64
	position   int64
	limit      int64
	expired    int64
	drained    int64
	// last is what the span's own attributes say of what blocked it, and blockers what its events do.
	last     blockedBy
	blockers []blockedBy
}

// blockedBy names a hold that was in the way.
type blockedBy struct {
	lockID, owner string
	fence         int64
	trace         traceID
	span          spanID
}

// reset makes s a new span, and keeps its memory.
func (s *span) reset() { *s = span{blockers: s.blockers[:0]} }

// lost makes s the event that a lock is lost.
func (s *span) lost(trace traceID, id spanID, at int64) {
	s.kind, s.trace, s.id, s.start, s.end = kindLost, trace, id, at, at
	s.texts[textOutcome] = telemetry.OutcomeLost
}

// attribute takes one in. Integers come as text if the format has them so.
func (s *span) attribute(key, value string) {
	if t, ok := textOf[key]; ok {
		s.texts[t] = value
		return
	}
	switch key {
	case telemetry.Fence:
		s.fence = integer(value)
	case telemetry.Hold:
		s.hold = integer(value)
	case telemetry.Limit:
		s.limit = integer(value)
	case telemetry.Position:
		s.position = integer(value)
	default:
		s.last.attribute(key, value)
	}
}

func (b *blockedBy) attribute(key, value string) {
	switch key {
	case telemetry.BlockedByID:
		b.lockID = value
	case telemetry.BlockedByOwner:
		b.owner = value
	case telemetry.BlockedByFence:
		b.fence = integer(value)
	case telemetry.BlockedByTrace:
		b.trace = parseTraceID(value)
	case telemetry.BlockedBySpan:
		b.span = parseSpanID(value)
	}
}

// lacks is what the span needs and has not, or empty.
func (s *span) lacks() string {
	switch {
	case s.start <= 0 || s.end <= 0:
		return "a time"
	case s.kind == kindRenew || s.kind == kindLost:
		return ""
	case s.texts[textResource] == "":
		return telemetry.Resource
	case s.texts[textLockID] == "":
		return telemetry.LockID
	case s.kind == kindHold && s.fence == 0:
		return telemetry.Fence
	}
	return ""
}

// integer reads one; what is none is 0, as if it were absent. Some tools make floating-point numbers of integers.
func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= 1<<63 {
		return 0
	}
	return int64(f)
}

// parseTraceID reads up to 32 hexadecimal digits; leading zeros may be missing. It is zero if there is something else.
func parseTraceID(s string) (id traceID) {
	fromHex(id[:], s)
	return id
}

// parseSpanID reads up to 16 hexadecimal digits; leading zeros may be missing. It is zero if there is something else.
func parseSpanID(s string) (id spanID) {
	fromHex(id[:], s)
	return id
}

// fromHex fills to, which is zero, from its end, where s fits and is hexadecimal.
func fromHex(to []byte, s string) {
	if len(s) > 2*len(to) {
		return
	}
	for i := range len(s) {
		c := s[len(s)-1-i]
		var nibble byte
		switch {
		case c >= '0' && c <= '9':
			nibble = c - '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			nibble = c | 0x20 - 'a' + 10
		default:
			clear(to)
			return
		}
		to[len(to)-1-i/2] |= nibble << (4 * (i % 2))
	}
}
