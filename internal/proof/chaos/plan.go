package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. Each has a control that must show a violation: see controls.go.
const (
	Kill            Kind = "kill"
	Pause           Kind = "stop"
	DatabaseRestart Kind = "database restart"
	TemporalRestart Kind = "Temporal restart"
	Cut             Kind = "cut"
	Slow            Kind = "slow"
	HalfOpen        Kind = "half-open"
	WrongClock      Kind = "clock"
)

// kinds lists all kinds, in the order of the output.
var kinds = []Kind{Kill, Pause, DatabaseRestart, TemporalRestart, Cut, Slow, HalfOpen, WrongClock}

const (
	// ttl is the TTL of all leases, claims and waiters, so that many end during a run.
	ttl = 3 * time.Second
	// stuckBound is added to recoveryBound after faults that leave commands without an answer: see [Fault.sticks].
	stuckBound = 10 * time.Second

	// lastFault is the time from the start of the last fault to the end of the load, so that all can recover within the load.
	lastFault = 20 * time.Second

	clients = 6
	workers = 2
	slots   = clients + workers // the clients come first
)

// recoveryBound is the time after the end of a fault within which each client's operations must succeed again. The flag
// -recovery changes it.
var recoveryBound = max(2*time.Second, ttl)

// Fault is one fault of a plan.
type Fault struct {
	Kind Kind
	// At is the time since the start of the load at which it begins, and For how long it lasts.
	At, For time.Duration
	// Slot is the process that it concerns. It is -1 for restarts of servers, which concern all.
	Slot int
	// Temporal selects the connections of a worker to Temporal instead of those to the database.
	Temporal bool `json:",omitempty"`
	// Delay is the time that a slow connection adds to each piece of data in each direction.
	Delay time.Duration `json:",omitempty"`
	// Requests and Answers select the directions that a half-open connection swallows.
	Requests, Answers bool `json:",omitempty"`
	// Silent leaves half-open connections as they are at the end of the fault. Otherwise they are reset then.
	Silent bool `json:",omitempty"`
	// Wall is the error of the wall clock after a fault of the clock.
	Wall time.Duration `json:",omitempty"`
	// Twice restarts both processes of a database that has two, and not only the process that clients connect to.
	Twice bool `json:",omitempty"`
}

// concerns reports whether a fault disturbs the operations of a client on the database.
func (f *Fault) concerns(slot int) bool {
	return f.Kind == DatabaseRestart || f.Slot == slot && !f.Temporal
}

// sticks reports whether a fault may leave a command without an answer, so that only its time limit ends it. That happens on a
// connection that stays half-open, and to commands that arrive while the database starts, because later commands overtake them.
func (f *Fault) sticks() bool { return f.Silent || f.Kind == DatabaseRestart }

// bound returns the time after its end within which operations must succeed again.
func (f *Fault) bound() time.Duration {
	if f.sticks() {
		return recoveryBound + stuckBound
	}
	return recoveryBound
}

// String describes a fault in a few words.
func (f *Fault) String() string {
	target := fmt.Sprintf(" of %s", slotName(f.Slot))
	if f.Slot < 0 {
		target = ""
	} else if f.Temporal {
		target += " to Temporal"
	}
	text := fmt.Sprintf("%s%s for %v", f.Kind, target, f.For.Round(time.Millisecond))
	switch f.Kind {
	case Slow:
		text += fmt.Sprintf(" by %v", f.Delay)
	case HalfOpen:
		text += fmt.Sprintf(" (requests %t, answers %t, silent %t)", f.Requests, f.Answers, f.Silent)
	case WrongClock:
		text = fmt.Sprintf("%s%s wrong by %v", f.Kind, target, f.Wall)
	}
	return text
}

func slotName(slot int) string {
	if slot < clients {
		return fmt.Sprintf("client %d", slot)
	}
	return fmt.Sprintf("worker %d", slot-clients)
}

// NewPlan returns the faults of a seed, in the order of time. It is a pure function. Each seed has at least three kinds, and
// each eight seeds in a row have all.
func NewPlan(seed uint64, long time.Duration) []Fault {
	r := rand.New(rand.NewPCG(seed, 0xc4a05)) //nolint:gosec // it must be the same each time
	var chosen []Kind
	for i, k := range kinds {
		distance := (uint64(i) + 8 - seed%8) % 8
		if distance == 0 || distance == 3 || distance == 5 || r.IntN(2) == 0 {
			chosen = append(chosen, k)
		}
	}
	var faults []Fault
	next := slices.Clone(chosen) // each kind once, and then at random
	for at := span(r, 1500, 4000); at < long-lastFault; at += span(r, 1000, 5000) {
		if len(next) == 0 {
			next = append(next, chosen[r.IntN(len(chosen))])
		}
		i := r.IntN(len(next))
		faults = append(faults, newFault(r, next[i], at))
		next = slices.Delete(next, i, i+1)
	}
	return faults
}

// span draws a duration between two numbers of milliseconds.
func span(r *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+r.IntN(to-from)) * time.Millisecond
}

func newFault(r *rand.Rand, kind Kind, at time.Duration) Fault {
	f := Fault{Kind: kind, At: at, Slot: r.IntN(slots)}
	switch kind {
	case Kill:
	case Pause:
		f.For = ttl + span(r, 500, 3000)
	case DatabaseRestart:
		f.Slot, f.For, f.Twice = -1, span(r, 200, 2500), r.IntN(2) == 0
	case TemporalRestart:
		f.Slot, f.For = -1, span(r, 200, 4000)
	case Cut:
		f.For = span(r, 1, 2000)
	case Slow:
		f.For, f.Delay = span(r, 2000, 6000), span(r, 50, 700)
	case HalfOpen:
		f.For = span(r, 1000, 6000)
		f.Requests, f.Answers = r.IntN(2) == 0, r.IntN(2) == 0
		f.Answers = f.Answers || !f.Requests
		f.Silent = r.IntN(3) == 0
	case WrongClock: // a worker with a wrong clock is Temporal's concern: its SDK compares the server's times with its own
		f.Slot, f.Wall = r.IntN(clients), span(r, 60_000, 600_000).Round(time.Second)
		if r.IntN(2) == 0 {
			f.Wall = -f.Wall
		}
	}
	if f.Kind == Cut || f.Kind == Slow || f.Kind == HalfOpen {
		f.Temporal = f.Slot >= clients && r.IntN(2) == 0
	}
	return f
}
