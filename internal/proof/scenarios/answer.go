package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// answer describes the answer to an operation in one line.
type answer struct {
	*player
	// d is the document after the operation.
	d     *rules.Document
	r     *rules.Result
	words []string
}

func (a *answer) add(format string, args ...any) {
	a.words = append(a.words, fmt.Sprintf(format, args...))
}

// describe adds the outcome of an operation, its details, and what the operation ended or granted.
func (a *answer) describe(op rules.Op) {
	switch op := op.(type) {
	case rules.Acquire:
		a.outcome("granted")
		a.acquired(&op)
	case rules.Renew:
		a.outcome("renewed")
		if a.r.Outcome == rules.Granted {
			a.lease("", a.d.Part(op.Caller))
			a.lease("the hold ", a.d.Kept(op.LockID))
		}
	case rules.Verify:
		a.outcome("held")
		if a.r.Outcome == rules.Granted {
			a.lease("", a.d.Kept(op.LockID))
		}
	case rules.Withdraw:
		a.outcome("withdrawn")
	case rules.Promote:
		a.outcome("promoted")
	case rules.Raise:
		a.outcome("raised")
	default:
		a.outcome("done")
	}
	a.consequences()
}

// outcome adds the outcome, with a word of the operation for Granted.
func (a *answer) outcome(granted string) {
	switch a.r.Outcome {
	case rules.Granted:
		a.add("%s", granted)
	case rules.Again:
		a.add("granted before")
	case rules.OtherRun:
		a.add("refused, run %s holds or waits", a.r.Note)
	case rules.Deadlock:
		a.add("deadlock: %s", a.r.Note)
	case rules.Superseded:
		a.add("superseded")
	default:
		a.add("%s", string(a.r.Outcome))
	}
}

// lease adds the time that is left of an entry, unless there is none.
func (a *answer) lease(what string, e *rules.Entry) {
	if e != nil {
		a.add("%s%s", what, left(e.ExpiresAt, a.d.At))
	}
}

// acquired adds the details of the answer to a request.
func (a *answer) acquired(op *rules.Acquire) {
	switch a.r.Outcome {
	case rules.Granted, rules.Joined, rules.Again:
		e, ttl := a.d.Part(op.Caller), op.TTL
		if op.HoldOnly {
			e, ttl = a.d.Kept(op.LockID), op.HoldTTL
		}
		if e == nil {
			a.add("without an entry") // a defect
			return
		}
		a.add("%s%s", a.fencesOf(e), option("member", strings.TrimPrefix(e.Member, a.base+"/")))
		if asked := a.d.At.Add(time.Duration(ttl) * time.Millisecond); ttl == 0 || left(e.ExpiresAt, a.d.At) != left(asked, a.d.At) {
			a.lease("", e)
		}
	case rules.Queued:
		if a.r.Length < a.r.Position {
			a.add("position %d", a.r.Position) // the same write has granted it a claim
		} else {
			a.add("position %d of %d", a.r.Position, a.r.Length)
		}
	case rules.Busy:
		var names []string
		for i := range a.d.Entries {
			if e := &a.d.Entries[i]; e.LockID != op.LockID && e.Alive(a.d.At) && !slices.Contains(names, name(e.LockID)) {
				names = append(names, name(e.LockID))
			}
		}
		if len(names) > 0 {
			a.add("held by %s", strings.Join(shorten(names), " and "))
		}
	case rules.Lost:
		if e := a.d.LossEvidence(op.LockID, op.Run, op.LostSince); e != nil {
			a.add("%s", cause(e.By, e.Reason))
		}
	case rules.Superseded:
		a.superseded(op)
	}
}

// superseded adds what superseded a request.
func (a *answer) superseded(op *rules.Acquire) {
	switch by, ok := a.d.SupersededBy(op.Caller); {
	case !ok:
		a.add("by another call")
	case by.Reason != "":
		a.add("%s, up to order %s", by.Reason, orderName(by.Order))
	case by.Released:
		a.add("released up to order %s", orderName(by.Order))
	default:
		a.add("by order %s", orderName(by.Order))
	}
}

// consequences adds what the operation ended, evicted and granted, and the length of the queue.
func (a *answer) consequences() {
	drains := func(e rules.Entry) bool {
		return slices.ContainsFunc(a.d.Entries, func(o rules.Entry) bool {
			return o.State == rules.StateDraining && o.SameRequest(&e.Caller) && e.State == rules.StateRunning
		})
	}
	a.list("drains", slices.DeleteFunc(a.r.Released(), func(e rules.Entry) bool { return !drains(e) }), partName)
	a.list("ends", slices.DeleteFunc(a.r.Released(), drains), partName)
	keptNoMore := slices.DeleteFunc(a.r.HoldsEnded(a.d), func(e rules.Entry) bool { return e.State != rules.StateKept })
	a.list("nothing more is kept by", keptNoMore, func(e *rules.Entry) string { return name(e.LockID) })
	a.list("withdraws", a.r.Withdrawn(a.d.At), a.withdrawn)
	a.list("evicts", a.r.Expired, partName)
	a.list("grants the hold of", a.r.Holds, func(e *rules.Entry) string { return name(e.LockID) + " " + name(e.Part) + a.origin(e) })
	if a.r.Length > 0 && a.r.Outcome != rules.Queued {
		a.add("%d waiting", a.r.Length)
	}
}

// list adds the descriptions of entries, unless there are none.
func (a *answer) list(what string, entries []rules.Entry, describe func(*rules.Entry) string) {
	var texts []string
	for i := range entries {
		texts = append(texts, describe(&entries[i]))
	}
	if len(texts) > 0 {
		a.add("%s %s", what, strings.Join(shorten(distinct(texts)), " and "))
	}
}

// withdrawn describes a waiter or a claim that was ended.
func (a *answer) withdrawn(e *rules.Entry) string {
	kind, times := "the waiter ", "queued "+ago(e.Since, a.d.At)
	if e.State == rules.StateClaimed {
		kind, times = "the claim of ", times+", granted "+ago(e.ClaimedAt, a.d.At)+a.origin(e)
	}
	return kind + partName(e) + order(e.Order) + " " + a.mode(e.Mode, e.Limit, e.Member) + option("owner", e.Owner) + " (" + times + ")"
}
