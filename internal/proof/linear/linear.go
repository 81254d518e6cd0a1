package linear

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// MaxClients is the greatest number of clients in a history. In chaos, a party that may still hold a lock needs one too.
const MaxClients = 48

// Verb names an operation.
type Verb string

// The operations.
const (
	TakeExclusive Verb = "take exclusive"
	TakeShared    Verb = "take shared"
	WaitExclusive Verb = "wait for exclusive"
	WaitShared    Verb = "wait for shared"
	Renew         Verb = "renew"
	Leave         Verb = "leave"
	Release       Verb = "release"
	// Settle leaves a resource after a take or a wait with an unknown outcome, and is acknowledged.
	Settle Verb = "leave after an unknown outcome"
)

// Takes reports whether the operation asks for a lock.
func (v Verb) Takes() bool { return v.mode() != 0 }

// Waits reports whether the operation waits in the queue.
func (v Verb) Waits() bool { return v == WaitExclusive || v == WaitShared }

func (v Verb) mode() mode {
	switch v {
	case TakeExclusive, WaitExclusive:
		return exclusive
	case TakeShared, WaitShared:
		return shared
	}
	return 0
}

// Operation is a call of a client and its answer.
type Operation struct {
	Do       Verb
	Resource string
	// Client is 0 to MaxClients-1.
	Client int
	// OK is set if the operation was granted or succeeded.
	OK bool
	// Fence is that of the lease; 0 if there is none.
	Fence int64
	// Unknown is set on a take or a wait that failed. Try numbers the unknown outcomes of a client on a
	// resource from 1, and a Settle has the number of the operation that it settles.
	Unknown bool
	Try     uint16
	// From and To are the times of the call and of the answer, by one clock. To of an operation with an
	// unknown outcome is that of its Settle.
	From, To time.Duration
}

// String describes the operation with its answer.
func (o Operation) String() string {
	answer := "done"
	switch {
	case o.Unknown:
		answer = "unknown outcome"
	case o.Do.Takes() && o.OK:
		answer = fmt.Sprintf("granted with fence %d", o.Fence)
	case o.Do.Waits():
		answer = "not granted in time"
	case o.Do.Takes():
		answer = "refused"
	case o.Do == Renew && o.OK:
		answer = fmt.Sprintf("held with fence %d", o.Fence)
	case o.Do == Renew:
		answer = "lost"
	}
	return fmt.Sprintf("client %d: %s → %s (%s to %s)", o.Client, o.Do, answer, o.From.Round(time.Microsecond), o.To.Round(time.Microsecond))
}

type mode byte

const (
	exclusive mode = 'X'
	shared    mode = 'S'
)

// lock is a possible state of a resource: the mode in which each client holds, the number of the last
// unknown outcome that each has settled, and the smallest value that the greatest fence can have.
type lock struct {
	holds   [MaxClients]mode
	settled [MaxClients]uint16
	fence   int64
}

// next returns the states to which an operation can lead; none if no lock in this state gives its answer.
func (l lock) next(o Operation) []any {
	held := l.holds[o.Client] != 0
	switch {
	case o.Do.Takes() && o.Unknown:
		if o.Try <= l.settled[o.Client] || !l.admits(o.Do.mode()) {
			return []any{l}
		}
		return []any{l, l.granted(o, l.fence+1)}
	case o.Do.Takes() && o.OK:
		if !l.admits(o.Do.mode()) || o.Fence <= l.fence {
			return nil
		}
		return []any{l.granted(o, o.Fence)}
	case o.Do.Waits():
		return []any{l}
	case o.Do.Takes():
		if l.admits(o.Do.mode()) {
			return nil
		}
		return []any{l}
	case o.Do == Renew:
		if o.OK != held || (held && o.Fence > l.fence) {
			return nil
		}
		return []any{l}
	case o.Do == Settle:
		l.settled[o.Client] = o.Try
	}
	l.holds[o.Client] = 0
	return []any{l}
}

// admits reports whether the holders admit a client that holds nothing.
func (l lock) admits(m mode) bool {
	for _, how := range l.holds {
		if how == exclusive || (how != 0 && m == exclusive) {
			return false
		}
	}
	return true
}

func (l lock) granted(o Operation, fence int64) lock {
	l.holds[o.Client], l.fence = o.Do.mode(), fence
	return l
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{lock{}} },
	Step: func(state, operation, _ any) []any { return state.(lock).next(operation.(Operation)) },
}).ToModel()

// Result is the result of a check.
type Result struct {
	// OK is set if the history is linearizable.
	OK bool
	// Undecided is set if the check did not end in time.
	Undecided bool
	// Seen describes the first answer that no lock could have given, if the history is not linearizable.
	Seen string
}

// Check checks a history, each resource by itself, for at most limit.
func Check(history []Operation, limit time.Duration) Result {
	deadline := time.Now().Add(limit)
	of := map[string][]porcupine.Operation{}
	var resources []string
	for _, o := range history {
		if of[o.Resource] == nil {
			resources = append(resources, o.Resource)
		}
		of[o.Resource] = append(of[o.Resource], porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.From), Return: int64(o.To)})
	}
	undecided := false
	for _, resource := range resources {
		switch porcupine.CheckOperationsTimeout(model, of[resource], max(time.Until(deadline), time.Millisecond)) {
		case porcupine.Illegal:
			return Result{Seen: explain(resource, of[resource], deadline)}
		case porcupine.Unknown:
			undecided = true
		}
	}
	return Result{OK: !undecided, Undecided: undecided}
}

// mostShown bounds the operations of an explanation.
const mostShown = 6

// explain describes the first answer that does not fit the history before it: no order that a lock could have answered has all
// operations up to it.
func explain(resource string, history []porcupine.Operation, deadline time.Time) string {
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	result, info := porcupine.CheckOperationsVerbose(model, history, max(time.Until(deadline), time.Millisecond))
	if result != porcupine.Illegal {
		return fmt.Sprintf("on %s: %d operations fit no order", resource, len(history))
	}
	n := 0
	for _, order := range info.PartialLinearizations()[0] {
		slices.Sort(order)
		placed := 0
		for placed < len(order) && order[placed] == placed {
			placed++
		}
		n = max(n, placed)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "on %s: %s. It fits no order of the operations before it. The latest of these:", resource, history[n].Input)
	for _, o := range history[max(0, n-mostShown):n] {
		fmt.Fprintf(&b, "\n%s", o.Input)
	}
	return b.String()
}
