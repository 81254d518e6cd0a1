package lockcore

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Conditions. Match them with [errors.Is]; the types below carry the facts.
var (
	// ErrBusy: others hold the resource, or are ahead in its queue. Nothing was acquired.
	ErrBusy = errors.New("lockstep: busy")
	// ErrQueueFull: the queue has Config.MaxWaiters, or the resource's document has 12 MB. Nothing was
	// acquired. Such an error matches ErrBusy too.
	ErrQueueFull = errors.New("lockstep: queue full")
	// ErrLost: the lock ID or the session no longer holds the lock.
	ErrLost = errors.New("lockstep: lost")
	// ErrSuperseded: a newer request, or a release, was applied before this one. Nothing changed.
	ErrSuperseded = errors.New("lockstep: superseded")
	// ErrDeadlock: the request was removed from the queue to end a deadlock. Nothing was acquired. Release
	// what else its owner holds: others in the deadlock wait for it.
	ErrDeadlock = errors.New("lockstep: deadlock")
	// ErrInvalid: an argument is invalid. Nothing was changed in the database.
	ErrInvalid = errors.New("lockstep: invalid")
	// ErrUnknownOutcome: the operation may have taken effect. The call can be repeated. If it is not, what
	// it may have acquired is released in the background.
	ErrUnknownOutcome = errors.New("lockstep: outcome unknown")
	// ErrDamaged: the resource's document cannot be decoded. Nothing was acquired.
	ErrDamaged = store.ErrDamaged
	// ErrNoPool: a request asked for a member of a pool that no operator has made. Nothing was acquired.
	ErrNoPool = errors.New("lockstep: no pool")
	// ErrFenced: UpdateFenced has written nothing, since a later lease has written, or tried to write, to the
	// document.
	ErrFenced = errors.New("lockstep: fenced off")
	// ErrClosed is returned by every call of a closed Locker, and by calls whose wait Close ends.
	ErrClosed = errors.New("lockstep: locker closed")
	// ErrNoPolicy is returned by RemovePolicy if there is no such policy.
	ErrNoPolicy = rules.ErrNoPolicy
	// ErrEnded is the cause of a session's cancelled context after Leave or Release.
	ErrEnded = errors.New("lockstep: session ended")
)

// BusyError names the holders that block a request. It matches ErrBusy.
type BusyError struct {
	Resource, LockID string
	// Position is the request's position in the queue, from 1; 0 if it did not queue. A waiter that is passed over keeps it.
	Position int
	// Holders block the request: at most 16 of them, since thousands can share a resource.
	Holders []Holder
	// Blocking is the number of all holders that block the request; 0 if it is not known.
	Blocking int
	// RetryIn is the time after which all holders that block the request have expired, unless they are
	// renewed; Forever if one never expires.
	RetryIn time.Duration
	// Waiting is the number of waiters in the queue.
	Waiting int
	// Full is set if the queue is full; the error matches ErrQueueFull too.
	Full bool
	// Note explains the wait, for people; empty if there is nothing to add.
	Note string
	// At is the server's time at which Holders and Position were true; zero if it is not known.
	At time.Time
	// NotHeldSince is the server's time since which the lock ID is known not to have held the resource in the
	// request's mode, or exclusively. It is zero if it holds the resource so, or may have done so in the last
	// day. Holds of another [Caller].Run do not count.
	NotHeldSince time.Time
	// grantIn is the predicted time to the grant; 0 without a prediction.
	grantIn time.Duration
	// ofRun is set if the request names a run.
	ofRun bool
}

const (
	// mostNamed bounds the holders in the text of a BusyError.
	mostNamed = 3
	// mostHolders bounds the holders in a BusyError, and what Status finds in the way of a waiter: a resource may
	// have thousands of holders and of waiters, and no answer may cost the product.
	mostHolders = 16
)

func (e *BusyError) Error() string {
	var facts []string
	switch {
	case e.Full:
		facts = append(facts, fmt.Sprintf("its queue is full: %d wait", e.Waiting))
	case e.Position > 0:
		facts = append(facts, fmt.Sprintf("position %d of %d in the queue", e.Position, max(e.Waiting, e.Position)))
	}
	if !e.At.IsZero() {
		facts = append(facts, "as of "+e.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	when := ""
	if facts != nil {
		when = " (" + strings.Join(facts, ", ") + ")"
	}
	who := []string{"others are ahead in the queue"}
	if len(e.Holders) > 0 {
		who = nil
	}
	namespace := ofWorkflow.FindString(e.LockID)
	for _, h := range e.Holders[:min(mostNamed, len(e.Holders))] {
		if h.Run != "" {
			h.LockID, h.Owner = name(namespace, h.LockID, true), name(namespace, h.Owner, true)
		}
		who = append(who, h.String())
	}
	if more := max(e.Blocking, len(e.Holders)) - mostNamed; more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	if e.Note != "" {
		who = slices.Insert(who, 0, e.Note)
	}
	return rules.Printable(fmt.Sprintf("lockstep: %q is busy for %q%s: %s", e.Resource, name(namespace, e.LockID, e.ofRun), when, strings.Join(who, "; ")))
}

// ofWorkflow matches the beginning of the lock IDs and owners of workflows, the ID of a namespace, and that of the
// names of their parts, the ID of a run.
var ofWorkflow = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/`)

// name returns a lock ID or an owner for people: for a workflow of the namespace it is the workflow ID. Only if it is
// known to belong to a run may the name of a step follow: plain lock IDs may begin with a UUID too.
func name(namespace, lockID string, ofRun bool) string {
	id, ok := strings.CutPrefix(lockID, namespace)
	id, _, ofStep := strings.Cut(id, "/")
	if namespace == "" || !ok || (ofStep && !ofRun) {
		return lockID
	}
	if plain, err := url.PathUnescape(id); err == nil {
		return plain
	}
	return id
}

// Is makes errors.Is(err, ErrBusy) true, and errors.Is(err, ErrQueueFull) if the queue was full.
func (e *BusyError) Is(target error) bool {
	return target == ErrBusy || (e.Full && target == ErrQueueFull)
}

// LostError names a lost lock, and the lock ID that was granted the resource if it is known. It matches
// ErrLost. Part and Order are those of the [Lease].
type LostError struct {
	Resource, LockID, Part string
	Order                  Order
	// By is the lock ID that was granted the resource; empty if it is not known.
	By string
	// Reason is the reason of a forced release, or describes how the loss was noticed.
	Reason string
}

func (e *LostError) Error() string {
	namespace, ofRun := ofWorkflow.FindString(e.LockID), ofWorkflow.MatchString(e.Part)
	s := fmt.Sprintf("lockstep: %q lost its lock on %q", name(namespace, e.LockID, ofRun), e.Resource)
	if e.By != "" {
		s += fmt.Sprintf(" to %q", name(namespace, e.By, ofRun))
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return rules.Printable(s)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// SupersededError names a request that came too late: a release of its lock ID was applied first, or a later
// request of the same Part. It matches ErrSuperseded.
type SupersededError struct {
	Resource, LockID, Part string
	// Order is the request's. By is the order of the later request or the release.
	Order, By Order
	// Released is set if it was a release, and not a later request of the same part.
	Released bool
	// Reason is the reason of a forced release.
	Reason string
}

func (e *SupersededError) Error() string {
	what := "a later request of the same part"
	if e.By == e.Order {
		what = "another request of the same part"
	}
	if e.Released {
		what = "a release"
	}
	if e.Reason != "" {
		what += " (" + e.Reason + ")"
	}
	return rules.Printable(fmt.Sprintf("lockstep: the request of %q (part %q, order %s) for %q came after %s with order %s",
		name(ofWorkflow.FindString(e.LockID), e.LockID, ofWorkflow.MatchString(e.Part)), e.Part, e.Order, e.Resource, what, e.By))
}

// Is makes errors.Is(err, ErrSuperseded) true.
func (e *SupersededError) Is(target error) bool { return target == ErrSuperseded }

// DeadlockError reports that a request left the queue to end a deadlock. It matches ErrDeadlock. The owner
// keeps what it holds: the others in the deadlock wait until it has released that.
type DeadlockError struct {
	Resource, LockID, Part string
	Order                  Order
	// Cycle describes the cycle of waits, for people.
	Cycle string
	// NotHeldSince is as in [BusyError].
	NotHeldSince time.Time
}

func (e *DeadlockError) Error() string {
	namespace := ofWorkflow.FindString(e.LockID)
	waits := strings.Split(e.Cycle, ", ")
	for i, wait := range waits {
		owner, rest, _ := strings.Cut(wait, " waits for ")
		if other, resource, complete := strings.Cut(rest, " on "); complete {
			waits[i] = name(namespace, owner, false) + " waits for " + name(namespace, other, false) + " on " + resource
		}
	}
	return rules.Printable(fmt.Sprintf("lockstep: %q gave up waiting for %q, since it was in a deadlock: %s",
		name(namespace, e.LockID, ofWorkflow.MatchString(e.Part)), e.Resource, strings.Join(waits, ", ")))
}

// Is makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// InvalidError reports an argument that is never accepted. It matches ErrInvalid.
type InvalidError struct {
	// Field is the name of the field or argument, Value its value, shortened for display, and Bound
	// describes the accepted values.
	Field, Value, Bound string
}

func (e *InvalidError) Error() string {
	return rules.Printable(fmt.Sprintf("lockstep: invalid %s %s: want %s", e.Field, e.Value, e.Bound))
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// UnknownOutcomeError reports an operation that may have taken effect. It matches ErrUnknownOutcome, and
// unwraps to the driver's error.
type UnknownOutcomeError struct {
	// Op is the operation: "acquire", "refresh", "renew", "leave", "release", "raise", or "deadlock",
	// which ends one.
	Op       string
	Resource string
	// Order is the order of the request.
	Order Order
	// Err is the driver's error.
	Err error
}

func (e *UnknownOutcomeError) Error() string {
	return rules.Printable(fmt.Sprintf("lockstep: %s of %q (order %s): outcome unknown: %v", e.Op, e.Resource, e.Order, e.Err))
}

// Is makes errors.Is(err, ErrUnknownOutcome) true.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap returns the driver's error.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// DamagedError names a document that cannot be decoded: it was damaged, or another program wrote it. Nothing was
// acquired. Other resources can be used. It matches ErrDamaged.
type DamagedError struct {
	// Resource is the _id of the document, which is the name of the resource. An _id that is not a string is
	// in extended JSON.
	Resource string
	// Err describes the damage.
	Err error
}

func (e *DamagedError) Error() string { return (*store.DamagedError)(e).Error() }

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns the decoder's error.
func (e *DamagedError) Unwrap() error { return e.Err }

// LayoutError reports a collection in which another version, or another program, keeps its documents.
// CreateIndexes and the first operation of a Locker return it. Nothing was written.
type LayoutError struct {
	// Collection is the name of the collection.
	Collection string
	// Found describes its content, and Help the remedy.
	Found, Help string
}

// Error names the collection, what was found, and what to do.
func (e *LayoutError) Error() string { return (*rules.LayoutError)(e).Error() }

// public returns an error of the engine with its type in this package. The engine does not wrap these errors.
func public(err error) error {
	var damaged *store.DamagedError
	var layout *rules.LayoutError
	var refused *rules.RefusedError
	switch {
	case errors.As(err, &damaged):
		return (*DamagedError)(damaged)
	case errors.As(err, &layout):
		return (*LayoutError)(layout)
	case errors.As(err, &refused):
		return (*InvalidError)(refused)
	}
	return err
}

// ErrOtherRun, of [Steps] alone: another run of the workflow holds, waits, or has replaced this one. Nothing was acquired.
var ErrOtherRun = errors.New("lockstep: another run holds")

// OtherRunError names the run of a workflow that holds or waits for its lock ID, or that has replaced the
// run of the request. It matches ErrOtherRun. If Run is the workflow's current run, repeat the request
// with [StepRequest].TakeOver set to Other. Otherwise Run has ended, and its request with it.
type OtherRunError struct {
	Resource, LockID string
	// Run is that of the request, and Other that of the other run. Other is empty if the lock ID was
	// used without a run.
	Run, Other string
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("lockstep: run %q of %q asks for %q, and run %q represents it",
		e.Run, name(ofWorkflow.FindString(e.LockID), e.LockID, e.Run != ""), e.Resource, e.Other)
}

// Is makes errors.Is(err, ErrOtherRun) true.
func (e *OtherRunError) Is(target error) bool { return target == ErrOtherRun }

func deadlockError(op *rules.Acquire, d *rules.Document, verdict string) *DeadlockError {
	return &DeadlockError{
		Resource: op.Resource, LockID: op.LockID, Part: op.Part, Order: orderOf(op.Order), Cycle: strings.TrimPrefix(verdict, deadlockReason),
		NotHeldSince: notHeldSince(d, op),
	}
}

// notHeldSince returns the value of BusyError.NotHeldSince. It is zero if the lock ID holds in a mode that
// covers the request's, or if there is evidence that it held. A release by the holder itself leaves no
// evidence. A shared hold was never exclusive, unless its Session has downgraded it.
func notHeldSince(d *rules.Document, op *rules.Acquire) time.Time {
	held := func(e rules.Entry) bool {
		return e.LockID == op.LockID && e.State != rules.StateClaimed && (e.CutOff || rules.Covers(e.Mode, op.Mode))
	}
	if d.LossEvidence(op.LockID, op.Run, op.LostSince) != nil || slices.ContainsFunc(d.Entries, held) {
		return time.Time{}
	}
	return d.EvidenceSince
}

func lostError(d *rules.Document, r rules.Caller, since time.Time) *LostError {
	e := d.LossEvidence(r.LockID, r.Run, since)
	lost := lossOf(d, r.LockID, r.Order, e, "it does not hold any longer")
	lost.Part = r.Part
	if by, ok := d.SupersededBy(r); ok && e == nil {
		lost.Reason = cmp.Or(by.Reason, "superseded by order "+orderOf(by.Order).String())
	}
	return lost
}

// lossOf returns a loss by its evidence. If that is nil, unknown is the Reason.
func lossOf(d *rules.Document, lockID string, order int64, e *rules.Evidence, unknown string) *LostError {
	lost := &LostError{Resource: d.ID, LockID: lockID, Order: orderOf(order), Reason: unknown}
	if e != nil {
		lost.By, lost.Reason = e.By, e.Reason
	}
	return lost
}

func busy(op *rules.Acquire, a *update.Answer) *BusyError {
	e := busyBy(op, a.After)
	e.Position, e.Waiting, e.Full = int(a.Position), int(a.Length), a.Outcome == rules.Full
	return e
}

// busyBy returns a BusyError with the holders in a document that block a request.
func busyBy(op *rules.Acquire, d *rules.Document) *BusyError {
	e := &BusyError{Resource: op.Resource, LockID: op.LockID, NotHeldSince: notHeldSince(d, op), At: d.At, ofRun: op.Run != ""}
	if asked := limitOf(op.Mode, op.Limit); asked > 0 && d.Policy != nil {
		e.Note = policyOf(d.Policy).inForce(asked)
	}
	e.Holders, e.Blocking, e.RetryIn = blockingHolders(d, op.Party())
	if op.Mode == rules.Pool && d.Policy.IsPool() {
		e.Note = outOfService(d.Policy.Members)
	}
	return e
}

// outOfService describes the members of a pool that are out of service, or returns the empty string.
func outOfService(members []rules.Member) string {
	var out []string
	for _, m := range members {
		if m.Out && m.Reason != "" {
			out = append(out, fmt.Sprintf("%q (%s)", m.Name, m.Reason))
		} else if m.Out {
			out = append(out, quote(m.Name))
		}
	}
	if len(out) == 0 {
		return ""
	}
	number := len(out)
	if number > mostNamed {
		out = append(out[:mostNamed], "and others")
	}
	return fmt.Sprintf("%d of %s out of service: %s", number, counted(len(members), "member is", "members are"), strings.Join(out, ", "))
}

// blockingHolders returns the first mostHolders holders that block a party, their number, and the time after which all have
// expired unless they are renewed.
func blockingHolders(d *rules.Document, p rules.Party) (found []Holder, number int, lasts time.Duration) {
	blocking, few := map[Blocker]bool{}, map[Blocker]bool{}
	lockIDs := map[string]bool{}
	for _, e := range d.Blockers(p) {
		b := blockerOf(e)
		if blocking[b] = true; len(few) < mostHolders {
			few[b], lockIDs[e.LockID] = true, true
		}
	}
	some := &rules.Document{ID: d.ID, At: d.At}
	for i := range d.Entries {
		e := &d.Entries[i]
		if blocking[blockerOf(e)] {
			lasts = max(lasts, remaining(e.ExpiresAt, d.At))
		}
		if lockIDs[e.LockID] {
			some.Entries = append(some.Entries, *e)
		}
	}
	for _, h := range holders(some) {
		if few[Blocker{h.LockID, h.State, h.Part}] && h.ExpiresIn > 0 && len(found) < mostHolders {
			found = append(found, h.Holder)
		}
	}
	return found, len(blocking), lasts
}

// blockerOf returns what an entry that blocks others is to them: a hold as a whole, or else a single part.
func blockerOf(e *rules.Entry) Blocker {
	if e.Holds() {
		return Blocker{LockID: e.LockID, State: StateHolding}
	}
	return Blocker{e.LockID, State(e.State), e.Part} // the names of the states are the same
}

// holders returns a document's holds, draining parts and claims, as others see them. An expired hold that was
// not evicted has an ExpiresIn of 0 or less. A part that has drained is omitted: it blocks no request, although
// the document contains it until the next write.
func holders(d *rules.Document) []Status {
	var out []Status
	at, running := map[string]int{}, map[string][]Running{} // holds and their parts by lock ID
	kept := d.AllKept()
	for i := range d.Entries {
		e := &d.Entries[i]
		if e.State == rules.StateKept { // once for each lock ID
			if e = kept[e.LockID]; e == nil {
				continue
			}
			delete(kept, e.LockID)
		}
		s := Status{Resource: d.ID, Holder: holderOf(d, e)}
		if e.State != rules.StateRunning { // the order of a hold is that of its kept entry
			s.Order = orderOf(e.Order)
		} else {
			running[e.LockID] = append(running[e.LockID], Running{Part: e.Part, Silent: s.Silent, ExpiresIn: s.ExpiresIn})
		}
		i, known := at[e.LockID]
		switch {
		case e.State == rules.StateDraining && s.ExpiresIn <= 0:
		case !e.Holds():
			s.State, s.Part = State(e.State), e.Part // their names are the same
			out = append(out, s)
		case !known:
			at[e.LockID] = len(out)
			out = append(out, s)
		default:
			out[i].addHold(&s, e.CreatedAt != nil)
		}
	}
	for lockID, i := range at {
		if out[i].Running = running[lockID]; len(out[i].Running) > 0 && out[i].Within != "" {
			out[i].Kept = false // the step no longer waits: the hold ends with it
		}
	}
	return out
}

// holderOf describes an entry as if it were a hold.
func holderOf(d *rules.Document, e *rules.Entry) Holder {
	h := Holder{
		LockID: e.LockID, Run: e.Run, Owner: cmp.Or(e.Owner, e.LockID), Host: e.Host, Mode: Mode(e.Mode), State: StateHolding,
		Fence: e.Fence, FirstFence: e.FirstFence, ExpiresIn: remaining(e.ExpiresAt, d.At), Trace: e.Trace, Comment: e.Comment, Limit: limitOf(e.Mode, e.Limit),
		Member: e.Member, Within: e.Within,
		Silent: max(0, d.At.Sub(lastRenewal(e))),
	}
	if began := cmp.Or(e.CreatedAt, e.ClaimedAt); began != nil {
		h.Since = *began
	}
	if e.State != rules.StateKept {
		return h
	}
	h.HoldTTL = ttlOf(e)
	h.Kept = h.Run != "" && h.ExpiresIn > 0 // without a workflow no janitor extends it
	return h
}

// addHold adds another entry of the same hold. If it describes the hold, the facts of the whole hold are its.
func (s *Status) addHold(other *Status, describes bool) {
	if describes {
		s.Owner, s.Host, s.Comment, s.Trace, s.Since, s.Limit = other.Owner, other.Host, other.Comment, other.Trace, other.Since, other.Limit
	}
	s.Order = cmp.Or(other.Order, s.Order)
	s.ExpiresIn, s.Silent = max(s.ExpiresIn, other.ExpiresIn), min(s.Silent, other.Silent)
	s.HoldTTL, s.Fence = max(s.HoldTTL, other.HoldTTL), max(s.Fence, other.Fence)
	s.Kept, s.Within = s.Kept || other.Kept, cmp.Or(s.Within, other.Within)
	s.Mode, s.Member = other.Mode.Stronger(s.Mode), cmp.Or(s.Member, other.Member)
}

// lastRenewal returns the time of the last renewal of an entry, or of its grant. An entry that expires was
// renewed its TTL before.
func lastRenewal(e *rules.Entry) (last time.Time) {
	if e.TTL > 0 && e.ExpiresAt.Before(rules.Never) {
		last = e.ExpiresAt.Add(-time.Duration(e.TTL) * time.Millisecond)
	}
	for _, t := range []*time.Time{e.CreatedAt, e.ClaimedAt, e.RenewedAt} {
		if t != nil {
			last = rules.Later(last, *t)
		}
	}
	return last
}

// limitOf returns the semaphore limit of a request. That of an exclusive waiter or claim is stored as 1.
func limitOf(mode string, limit int64) int {
	if mode == rules.Exclusive {
		return 0
	}
	return int(limit)
}
