package simulation

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// partKey names a request: the part of a lock ID, on a resource.
type partKey struct{ resource, lockID, part string }

// entryKey names an entry of a document. A kept hold has no part and no order.
type entryKey struct {
	partKey
	order int64
}

// dbChecks is what the checks of single writes remember.
type dbChecks struct {
	// fences are the greatest that were given.
	fences map[string]int64
	// made is when each entry was made.
	made map[entryKey]time.Time
	// relied are the parts that were told of a kept hold.
	relied map[partKey]bool
	// losses are, of lock IDs that were told of a loss, the greatest fences of the holds that it was about.
	losses map[partKey]int64
	// calls are the latest calls that asked for a part.
	calls map[partKey]*call
	// runs numbers the run labels in the order in which the runs began.
	runs map[string]int
	// closed are the run labels whose runs are over.
	closed map[string]bool
	// excused are the parts that their processes have begun to leave, or about which an answer was lost: those may be taken
	// for another attempt's.
	excused map[entryKey]bool
	// admissions are the parts that were let in.
	admissions []admission
}

func newDBChecks() dbChecks {
	return dbChecks{
		fences: map[string]int64{}, made: map[entryKey]time.Time{}, relied: map[partKey]bool{}, losses: map[partKey]int64{},
		calls: map[partKey]*call{}, runs: map[string]int{}, closed: map[string]bool{}, excused: map[entryKey]bool{},
	}
}

// lateAfter is how old a command is that must not take effect any more: the command timeout, and what clocks differ.
const lateAfter = rules.CommandTimeout + time.Second

// written checks one write.
func (w *world) written(c *command, before, after rules.Document) {
	w.tellWrite(c, &after)
	w.register(c, &after)
	w.admits(&before, &after)
	w.fencesGrow(c, &before, &after)
	w.copiesChangeNothing(c, &before, &after)
	w.endsAreMeant(c, &before, &after)
	w.grantsAreDue(c, &before, &after)
	w.lostStaysLost(c, &before, &after)
	w.verdictsAreTrue(c, &before, &after)
	w.queuesInOrder(c, &after)
	if c.kind != "renewAll" && c.kind != "renew" {
		w.circlesStand()
	}
	w.trustIsExclusive(after.ID)
}

// tellWrite takes down what the write did.
func (w *world) tellWrite(c *command, after *rules.Document) {
	copied := ""
	if c.copy > 0 {
		copied = " (a copy of " + (time.Since(c.sent)).Round(time.Millisecond).String() + " ago)"
	}
	switch op := c.op.(type) {
	case rules.Acquire:
		w.noted(c.p.name, c.lockID, "acquire %s %s %s/%d: %s fence %d%s", op.Resource, op.Mode, op.LockID, op.Order, after.Last.Outcome, after.Fence, copied)
	case rules.Renew:
		if op.Downgrade || after.Last.Outcome != rules.Granted {
			w.noted(c.p.name, c.lockID, "renew %s %s/%d downgrade %v: %s%s", op.Resource, op.LockID, op.Order, op.Downgrade, after.Last.Outcome, copied)
		}
	case []rules.Renew:
	case rules.Leave:
		w.noted(c.p.name, c.lockID, "leave %s %s/%d undo %v%s", op.Resource, op.LockID, op.Order, op.Undo, copied)
	case rules.Release:
		w.noted(c.p.name, c.lockID, "release %s %s/%d force %v: ended %d%s", op.Resource, op.LockID, op.Order, op.Force, len(after.Last.Released()), copied)
	case rules.Withdraw:
		if op.Order >= 0 {
			w.noted(c.p.name, op.LockID, "withdraw %s %s/%d: %s %s%s", op.Resource, op.LockID, op.Order, after.Last.Outcome, op.Reason, copied)
		}
	default:
		w.noted(c.p.name, c.lockID, "%s%s", c, copied)
	}
}

// register remembers which call stands behind an entry or a place.
func (w *world) register(c *command, after *rules.Document) {
	if c.call != nil && c.copy == 0 {
		if _, known := c.call.first[after.ID]; !known {
			c.call.first[after.ID] = time.Now()
		}
		if op, ok := c.op.(rules.Acquire); ok {
			w.calls[partKey{after.ID, op.LockID, op.Part}] = c.call
		}
	}
	switch op := c.op.(type) {
	case rules.Leave:
		if op.Waiting { // by the party that releases the lock ID
			w.releases[op.LockID] = time.Now()
		}
	case rules.Release:
		w.releases[op.LockID] = time.Now()
		w.allReleases = append(w.allReleases, released{op.LockID, op.Resource, time.Now()})
	case rules.Renew:
		w.renewals[partKey{op.Resource, op.LockID, op.Part}]++
	case []rules.Renew:
		for _, one := range op {
			if one.Resource == after.ID {
				w.renewals[partKey{one.Resource, one.LockID, one.Part}]++
			}
		}
	}
	for i := range after.Entries {
		e := &after.Entries[i]
		key := keyOf(after.ID, e)
		if _, known := w.made[key]; !known && e.Holds() {
			w.made[key] = time.Now()
		}
	}
}

func keyOf(resource string, e *rules.Entry) entryKey {
	if e.State == rules.StateKept {
		return entryKey{partKey{resource, e.LockID, ""}, 0}
	}
	return entryKey{partKey{resource, e.LockID, e.Part}, e.Order}
}

// fencesGrow is I3.
func (w *world) fencesGrow(c *command, before, after *rules.Document) {
	op, ok := c.op.(rules.Acquire)
	if !ok || after.Last.Outcome != rules.Granted {
		return
	}
	p := after.Part(op.LockID, op.Part, op.Order)
	if p == nil || p.Fence <= w.fences[after.ID] || p.Fence <= before.Fence {
		w.broken("I3", op.LockID, "%s was granted %s with a fence that is not above %d", op.LockID, after.ID, w.fences[after.ID])
		return
	}
	w.fences[after.ID] = p.Fence
}

// excuse has a part not count as held by its request.
func (w *world) excuse(key entryKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.excused[key] = true
}

// queuesInOrder is what keeps requests of several resources from waiting for each other in a circle: while one waits it holds
// nothing that comes after, by the same order.
func (w *world) queuesInOrder(c *command, after *rules.Document) {
	op, ok := c.op.(rules.Acquire)
	if !ok || op.Converts > 0 || after.Last.Outcome != rules.Queued {
		return
	}
	for _, name := range w.plan.resources {
		key := entryKey{partKey{name, op.LockID, op.Part}, op.Order}
		if name <= after.ID || w.excused[key] {
			continue
		}
		if d := w.db.Document(name); d.Part(op.LockID, op.Part, op.Order) != nil {
			w.broken("circle", op.LockID, "%s waits for %s and holds %s", op.LockID, after.ID, name)
		}
	}
}

// copiesChangeNothing is the half of I6 that is about copies of commands that come late.
func (w *world) copiesChangeNothing(c *command, before, after *rules.Document) {
	op, ok := c.op.(rules.Acquire)
	if !ok || time.Since(c.sent) < lateAfter {
		return
	}
	stood := map[entryKey]bool{}
	for i := range before.Entries {
		if e := &before.Entries[i]; lives(e, before.At) {
			stood[keyOf(before.ID, e)] = true
		}
	}
	places := map[string]bool{}
	for _, q := range before.Waiters {
		places[q.LockID+"/"+q.Part] = true
	}
	for i := range after.Entries {
		e := &after.Entries[i]
		mine := e.LockID == op.LockID && e.Order == op.Order && e.Part == op.Part
		turn := e.State == rules.StateClaimed && places[e.LockID+"/"+e.Part] // any write may have granted it its claim
		if mine && e.State != rules.StateDraining && lives(e, after.At) && !turn && !stood[keyOf(after.ID, e)] {
			w.broken("I6", op.LockID, "a command of %s for %s that is %v old was granted", op.LockID, after.ID, time.Since(c.sent).Round(time.Millisecond))
		}
	}
	for _, q := range after.Waiters {
		if q.LockID == op.LockID && q.Part == op.Part && !places[q.LockID+"/"+q.Part] {
			w.broken("I6", op.LockID, "a command of %s for %s that is %v old has queued", op.LockID, after.ID, time.Since(c.sent).Round(time.Millisecond))
		}
	}
}

// endsAreMeant is I5, and the half of I6 that is about repeated ends: what was in force and is not any more was named, and
// was there when the command first took effect.
func (w *world) endsAreMeant(c *command, before, after *rules.Document) {
	stands := map[entryKey]bool{}
	for i := range after.Entries {
		if e := &after.Entries[i]; e.Holds() {
			stands[keyOf(after.ID, e)] = true
		}
	}
	for i := range before.Entries {
		e := &before.Entries[i]
		key := keyOf(before.ID, e)
		if !e.Holds() || stands[key] {
			continue
		}
		made := w.made[key]
		delete(w.made, key)
		if !lives(e, after.At) {
			continue
		}
		if why := w.meant(c, e, made); why != "" {
			w.broken("I5", e.LockID, "%s ended %s of %s on %s: %s", c, e.State, e.LockID, before.ID, why)
		}
		if e.State == rules.StateKept {
			w.forgetRelied(before.ID, e.LockID)
		}
	}
}

// meant says why a command should not have ended an entry, and nothing if it should.
func (w *world) meant(c *command, e *rules.Entry, made time.Time) string {
	if c.lockID != e.LockID {
		return "it belongs to another lock ID, and has not expired"
	}
	switch op := c.op.(type) {
	case rules.Acquire:
		switch {
		case op.Label != "" && e.Label != op.Label && w.runs[op.Label] < w.runs[e.Label]:
			return "it is that of a later run"
		case op.Label != "" && (e.Label != op.Label || slices.Contains(op.Undo, e.Part)):
			return ""
		}
		if e.State == rules.StateKept || e.Part != op.Part || e.Order >= op.Order {
			return "it is not an earlier request of the same part"
		}
	case rules.Leave:
		if op.Label != e.Label {
			return "it is that of another run"
		}
		if e.State == rules.StateRunning && (e.Part != op.Part || e.Order != op.Order) {
			return "it is another part"
		}
		for p := range w.relied {
			if e.State == rules.StateKept && p.resource == op.Resource && p.lockID == op.LockID && p.part != op.Part {
				return "another part of the lock ID was told that it holds, and relies on it"
			}
		}
	case rules.Release:
		if op.Label != "" && op.Label != e.Label {
			return "it is that of another run"
		}
		if c.call != nil && c.call.fence > 0 && e.FirstFence != c.call.fence {
			return "it is another hold than the one that was named"
		}
		if c.call != nil && made.After(c.call.first[op.Resource]) {
			return "it was granted after the call had taken effect"
		}
	default:
		return "it ends nothing"
	}
	return ""
}

func (w *world) forgetRelied(resource, lockID string) {
	for p := range w.relied {
		if p.resource == resource && p.lockID == lockID {
			delete(w.relied, p)
		}
	}
}
