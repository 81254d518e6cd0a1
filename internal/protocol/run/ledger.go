package run

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// Ledger is what the run has sent out since a saga began, as far as it tells whether there is anything for a compensation
// to undo. A wrong no is worse than a wrong yes, so it says no only where all of these hold:
//
//  1. the compensation asks for locks by its context, as do the steps that it is about;
//  2. between its registration and the next one nothing was sent out but guarded steps, one at least asked for one of its
//     locks, and of each it is known that it never ran;
//  3. nothing that may have run asked for any of its locks: a step that it undoes, whenever it was registered, would have;
//  4. nothing was sent out without a guard: activities, child workflows, Nexus operations, and what goes to other workflows;
//  5. nothing may have run before the first registration: else this saga may register what undoes a step after the step.
//
// It counts by the locks of contexts alone, which stand in the workflow's code, and not by rules, which a deployment may change.
type Ledger struct {
	state *State
	// loose says that something was sent out without a guard.
	loose bool
	// early is how many steps may have run that were sent before the first registration.
	early int
	// under is how many steps may have run, by the name of each lock that they asked for.
	under map[string]int
	// last is the last registration, nil before the first.
	last *Undoing
}

// Undoing is the registration of a compensation.
type Undoing struct {
	ledger *Ledger
	// locks are those that the compensation asks for.
	locks names
	// ran is how many of the steps that followed may have run, and vain what the others had asked for.
	ran  int
	vain names
}

// sent is a step in a ledger.
type sent struct {
	ledger *Ledger
	undone *Undoing
	locks  names
}

// OpenLedger begins the ledger of a saga; [Ledger.Close] ends it. It is nil where the interceptor is not installed.
func OpenLedger(ctx workflow.Context) *Ledger {
	s := StateFrom(ctx)
	if s == nil {
		return nil
	}
	l := &Ledger{state: s, under: map[string]int{}}
	s.ledgers = append(s.ledgers, l)
	return l
}

// Close ends it. Nothing that is sent from now on is noted.
func (l *Ledger) Close() {
	if l != nil {
		l.state.ledgers = slices.DeleteFunc(l.state.ledgers, func(o *Ledger) bool { return o == l })
	}
}

// Register notes that a compensation was registered; isActivity says that it is an activity under ctx, and no code.
func (l *Ledger) Register(ctx workflow.Context, isActivity bool) *Undoing {
	if l == nil {
		return nil
	}
	l.last = &Undoing{ledger: l}
	if isActivity {
		l.last.locks, _ = locksOf(ctx)
	}
	return l.last
}

// locksOf are the names of the locks that a context asks for, and whether it asks for any.
func locksOf(ctx workflow.Context) (all names, asks bool) {
	l, _ := ctx.Value(locksKey{}).(*Locks)
	if l == nil {
		return nil, false
	}
	return resourceNames(l.Resources), true
}

// versionVain is the change ID of dropping a compensation whose step never ran, asked for at the first one of a run.
const versionVain = "lockstep.vain"

// InVain tells whether there is nothing to undo.
func (u *Undoing) InVain(ctx workflow.Context) bool {
	return u.inVain() && workflow.GetVersion(ctx, versionVain, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

func (u *Undoing) inVain() bool {
	return u != nil && !u.ledger.loose && u.ledger.early == 0 && u.ran == 0 && u.locks.meets(u.vain) &&
		!slices.ContainsFunc(u.locks, func(name string) bool { return u.ledger.under[name] > 0 })
}

// asks tells whether it has to be known of a step under such locks whether it ran.
func (u *Undoing) asks(locks names) bool { return u != nil && u.locks.meets(locks) }

func (n names) meets(other names) bool { return slices.ContainsFunc(n, other.has) }

// undoes tells whether there is a saga to which it matters whether a step under ctx ran.
func (s *State) undoes(ctx workflow.Context) bool {
	locks, asks := locksOf(ctx)
	return asks && !isCompensating(ctx) && slices.ContainsFunc(s.ledgers, func(l *Ledger) bool { return l.last.asks(locks) })
}

// send notes a step. What undoes others is none.
func (s *State) send(ctx workflow.Context, t *Step) {
	if isCompensating(ctx) {
		return
	}
	locks, asks := locksOf(ctx)
	if !asks {
		s.Loose(ctx)
		return
	}
	for _, l := range s.ledgers {
		note := sent{ledger: l, undone: l.last, locks: locks}
		note.add(1)
		t.sent = append(t.sent, note)
	}
}

// Loose notes that something was sent out without a guard.
func (s *State) Loose(ctx workflow.Context) {
	if isCompensating(ctx) {
		return
	}
	for _, l := range s.ledgers {
		l.loose = true
	}
}

// Ended notes that a step ended with an error, which it returns.
func (t *Step) Ended(err error) error {
	if t.Guard == nil || !t.Guard.Undo || !protocol.NeverRan(err) {
		return err
	}
	for _, note := range t.sent {
		note.add(-1)
		if note.undone != nil {
			for _, name := range note.locks {
				note.undone.vain.add(name)
			}
		}
	}
	t.sent = nil
	return err
}

// add counts a step that may have run, or takes it back.
func (n sent) add(by int) {
	for _, name := range n.locks {
		n.ledger.under[name] += by
	}
	if n.undone == nil {
		n.ledger.early += by
		return
	}
	n.undone.ran += by
}
