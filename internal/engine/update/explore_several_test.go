package update

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// event is a fault that meets a Swap of one or two documents.
type event struct {
	name string
	// others lists the resources that another process writes before.
	others []string
	// applies is the number of documents that are written; -1 is all that match.
	applies int
	// fails is set if the answer is an error, conflicts if it reports that nothing matched.
	fails, conflicts bool
	// late is set if the rest of the command is applied before the next command.
	late bool
	// cancels is set if the caller's context ends during the command.
	cancels bool
}

var events = []event{
	{name: "nothing", applies: -1},
	{name: "another writes r1", others: []string{"r1"}, applies: -1},
	{name: "another writes r2", others: []string{"r2"}, applies: -1},
	{name: "another writes both", others: []string{"r1", "r2"}, applies: -1},
	{name: "a lost command", fails: true},
	{name: "a late command", fails: true, late: true},
	{name: "a late command after another's", others: []string{"r2"}, fails: true, late: true},
	{name: "half a command", applies: 1, fails: true},
	{name: "half a command, and the rest is late", applies: 1, fails: true, late: true},
	{name: "a lost answer", applies: -1, fails: true},
	{name: "a lost answer after another's write", others: []string{"r2"}, applies: -1, fails: true},
	{name: "a conflict after it was applied", applies: -1, conflicts: true},
	{name: "the caller gives up", applies: -1, cancels: true},
	{name: "the caller gives up a lost command", fails: true, cancels: true},
	{name: "the caller gives up a late command", fails: true, late: true, cancels: true},
}

// scripted is a store in memory whose successive swaps meet the events of a script.
type scripted struct {
	*store.Memory
	mu     sync.Mutex
	script []event
	late   []store.Swap
	cancel context.CancelFunc
	writes int
}

// other writes as another process, which acquires the resource if it is free.
func (s *scripted) other(name string) {
	loaded, err := s.Memory.Load(context.Background(), name)
	if err != nil {
		panic(err)
	}
	op := rules.Acquire{
		Resource: name, Call: "b-" + name, Caller: rules.Caller{LockID: "b", Part: part, Order: 1}, Mode: rules.Exclusive, TTL: 3600_000, HoldTTL: 3600_000,
	}
	next, _ := op.Apply(loaded.Docs[name], loaded.At, settings)
	prev := rules.Version{}
	if d := loaded.Docs[name]; d != nil {
		prev = d.Version
	}
	s.writes++
	next.Version = rules.Version{N: prev.N + 1, R: fmt.Sprint("other-", s.writes)}
	if done, err := s.Memory.Swap(context.Background(), store.Swap{Prev: prev, Next: next}); err != nil || done != 1 {
		panic("the other process writes alone")
	}
}

func (s *scripted) deliver() {
	for _, swap := range s.late {
		_, _ = s.Memory.Swap(context.Background(), swap)
	}
	s.late = nil
}

func (s *scripted) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	return s.Memory.Load(ctx, names...)
}

func (s *scripted) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	e := events[0]
	if len(s.script) > 0 {
		e, s.script = s.script[0], s.script[1:]
	}
	for _, name := range e.others {
		s.other(name)
	}
	applied := swaps
	if e.applies >= 0 {
		applied = swaps[:min(e.applies, len(swaps))]
	}
	done := 0
	var err error
	if len(applied) > 0 {
		done, err = s.Memory.Swap(context.WithoutCancel(ctx), applied...)
	}
	if e.late && done == len(applied) {
		s.late = append(s.late, swaps[done:]...)
	}
	if e.cancels {
		s.cancel()
	}
	switch {
	case err != nil:
		return done, err
	case e.fails:
		return 0, errLost
	case e.conflicts:
		return 0, nil
	}
	return done, nil
}

// TestExploreSeveral carries out operations on two resources, with every pair of events and every state
// of the cache. An operation without an answer must have no effect, an operation with one must have its
// effect, and the other process must lose nothing.
func TestExploreSeveral(t *testing.T) {
	t.Parallel()
	var runs errgroup.Group
	runs.SetLimit(32) // they pause more than they work
	for _, known := range []bool{false, true} {
		for _, first := range events {
			for _, second := range events {
				for _, leaves := range []bool{false, true} {
					runs.Go(func() error {
						if err := playSeveral(t, known, leaves, first, second); err != nil {
							return fmt.Errorf("known %v, leaves %v, %s, then %s: %w", known, leaves, first.name, second.name, err)
						}
						return nil
					})
				}
			}
		}
	}
	require.NoError(t, runs.Wait())
}

func acquireCall(name string) *Call {
	op := rules.Acquire{
		Resource: name, Call: "a-" + name, Caller: rules.Caller{LockID: "a", Part: part, Order: 1}, Mode: rules.Exclusive, TTL: 3600_000, HoldTTL: 3600_000,
	}
	return &Call{Op: op, TakeBack: &Call{Op: leaveOp(name)}}
}

func leaveOp(name string) rules.TakeBack {
	return rules.TakeBack{Resource: name, Caller: rules.Caller{LockID: "a", Part: part, Order: 1}, Call: "a-" + name}
}

func playSeveral(t *testing.T, known, leaves bool, script ...event) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := &scripted{Memory: store.NewMemory(time.Now), cancel: cancel}
	ls := New(s, clock.Real{}, settings)
	defer ls.Close()
	names := []string{"r1", "r2"}
	granted := func(a Answer) bool { return a.Outcome == rules.Granted || a.Outcome == rules.Again }
	if known || leaves {
		for _, name := range names {
			if a := ls.Do(ctx, acquireCall(name)); a.Err != nil {
				return a.Err
			}
			if leaves {
				continue
			}
			if a := ls.Do(ctx, &Call{Op: leaveOp(name)}); a.Err != nil {
				return a.Err
			}
		}
	}
	s.mu.Lock()
	s.script = script
	s.mu.Unlock()
	calls := make([]*Call, len(names))
	var answers []Answer
	if leaves {
		for i, name := range names {
			calls[i] = &Call{Op: leaveOp(name), Owed: true}
		}
		answers = ls.DoAll(ctx, calls)
	} else {
		for i, name := range names {
			calls[i] = acquireCall(name)
		}
		answers, _, _ = ls.DoWhile(ctx, calls, granted)
	}
	settled, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	if owed := ls.WaitForDebts(settled); owed != nil {
		return fmt.Errorf("%d lines still owe", len(owed))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	for i, name := range names {
		d, _ := s.Document(name)
		holds := slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.LockID == "a" && e.State == rules.StateRunning })
		held := !leaves && i < len(answers) && answers[i].Err == nil && granted(answers[i])
		if holds != held {
			return fmt.Errorf("%s: held is %v, and told was %v", name, holds, held)
		}
		if len(d.Entries) > 1 {
			return fmt.Errorf("%s: two hold it", name)
		}
	}
	return nil
}
