package update

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// What a line owes stays owed in another epoch of the collection, and is written off with the collection itself.
func TestLine_OtherGeneration_PaysDebtsOfItsCollectionOnly(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	for name, test := range map[string]struct {
		in   rules.Generation
		owes bool
	}{
		"Same":       {rules.Generation{ID: "a", Epoch: "1"}, true},
		"OtherEpoch": {rules.Generation{ID: "a", Epoch: "2"}, true},
		"OtherID":    {rules.Generation{ID: "b", Epoch: "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := Line{Name: "x", Process: "p"}
			leave := rules.Leave{Resource: "x", Caller: rules.Caller{LockID: "l", Part: "p", Order: 1}}
			c := &Call{Op: leave, Owed: true}
			l.Handle(Joined{c})
			require.Equal(t, StepLoad, l.Next(Now{}, "r1").Kind)
			l.Handle(Loaded{nil, Now{At: at, Sent: at, In: rules.Generation{ID: "a", Epoch: "1"}}})
			step := l.Next(Now{}, "r2")
			require.Equal(t, StepSwap, step.Kind)
			require.Equal(t, rules.Generation{ID: "a", Epoch: "1"}, step.Swap.In)
			l.Handle(Abandoned{c})
			l.Handle(Failed{errLost})
			require.Equal(t, StepPause, l.Next(Now{}, "r3").Kind)
			require.Equal(t, StepLoad, l.Next(Now{}, "r3").Kind)
			l.Handle(Loaded{nil, Now{At: at, Sent: at, In: test.in}})
			require.Equal(t, test.owes, l.debt)
			step = l.Next(Now{}, "r4")
			require.Equal(t, test.owes, step.Kind == StepSwap, "%v", step.Kind)
			if test.owes {
				require.Equal(t, test.in, step.Swap.In)
			}
		})
	}
}

// held is an operation that takes a lock without an end, and back is what takes it back.
var (
	held = rules.Acquire{Resource: "x", Call: "c", Caller: rules.Caller{LockID: "l", Part: "p", Order: 1}, Mode: rules.Exclusive}
	back = rules.TakeBack{Resource: "x", Caller: rules.Caller{LockID: "l", Part: "p", Order: 1}, Call: "c"}
)

// A line whose document the watcher has read does not know the collection's generation, and owes nonetheless.
func TestLine_DocumentWasOffered_PaysItsDebt(t *testing.T) {
	t.Parallel()
	d := &rules.Document{ID: "x", Version: rules.Version{N: 1, R: "r"}, At: at(0)}
	l := Line{Name: "x", Process: "p"}
	c := &Call{Op: held, TakeBack: &Call{Op: back}}
	l.Handle(Joined{c})
	l.Handle(Offered{d})
	step := l.Next(Now{At: at(0), Sent: at(0)}, "r2")
	require.Equal(t, StepSwap, step.Kind)
	l.Handle(Abandoned{c})
	l.Handle(Failed{errLost})
	require.Equal(t, StepPause, l.Next(Now{}, "r3").Kind)
	require.Equal(t, StepLoad, l.Next(Now{}, "r3").Kind)
	l.Handle(Loaded{step.Swap.Next.Clone(), Now{At: at(1), Sent: at(1), In: rules.Generation{ID: "a", Epoch: "1"}}})
	step = l.Next(Now{}, "r4")
	require.Equal(t, StepSwap, step.Kind)
	require.Empty(t, step.Swap.Next.Entries)
}

// heldReads holds reads of one document back once they have been carried out.
type heldReads struct {
	store.Store
	name  string
	epoch *string
	until chan struct{}
}

func (s heldReads) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	l, err := s.Store.Load(ctx, names...)
	l.Identity.Epoch = *s.epoch
	if names[0] == s.name {
		<-s.until
	}
	return l, err
}

// A request gives up while the first read of its line is slow. What it owes is paid.
func TestLines_FirstReadIsSlow_DebtIsPaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, epoch, until := store.NewMemory(time.Now), "1", make(chan struct{})
		first := New(db, clock.Real{}, rules.Settings{ClaimTTL: 1000})
		require.Equal(t, rules.Granted, first.Do(t.Context(), &Call{Op: held}).Outcome)
		first.Close()
		ls := New(heldReads{db, "x", &epoch, until}, clock.Real{}, rules.Settings{ClaimTTL: 1000})
		defer ls.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, ls.DoAll(ctx, []*Call{{Op: back, Owed: true}})[0].Err)
		close(until)
		require.Empty(t, ls.WaitForDebts(t.Context()))
		d, _ := db.Document("x")
		require.Empty(t, d.Entries)
	})
}

// A late answer adds nothing about the collection to what a later read has reported.
func TestLines_LateAnswerOfAnOldEpoch_ChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, epoch, until := store.NewMemory(time.Now), "1", make(chan struct{})
		ls := New(heldReads{db, "slow", &epoch, until}, clock.Real{}, rules.Settings{ClaimTTL: 1000})
		defer ls.Close()
		var changes []string
		ls.Changed = func(before, now *rules.Identity) { changes = append(changes, before.Epoch+" to "+now.Epoch) }
		of := func(name string) *Call {
			return &Call{Op: rules.Acquire{Resource: name, Call: name, Caller: rules.Caller{LockID: name, Part: "p", Order: 1}, Mode: rules.Exclusive, TTL: 30_000}}
		}
		ls.Do(t.Context(), of("a"))
		go ls.Do(t.Context(), of("slow"))
		synctest.Wait()
		<-time.After(time.Second)
		epoch = "2"
		ls.Do(t.Context(), of("b"))
		close(until)
		synctest.Wait()
		ls.Do(t.Context(), of("c"))
		require.Equal(t, []string{"1 to 2"}, changes)
	})
}
