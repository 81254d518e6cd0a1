package update

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// What a line owes stays owed in another epoch of the collection, and is written off with the collection itself.
func TestLine_OtherGeneration_PaysDebtsOfItsCollectionOnly(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	for name, test := range map[string]struct {
		in   store.Generation
		owes bool
	}{
		"Same":       {store.Generation{ID: "a", Epoch: "1"}, true},
		"OtherEpoch": {store.Generation{ID: "a", Epoch: "2"}, true},
		"OtherID":    {store.Generation{ID: "b", Epoch: "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := Line{Name: "x", Process: "p"}
			leave := rules.Leave{Resource: "x", LockID: "l", Part: "p", Order: 1}
			c := &Call{Op: leave, TakeBack: &Call{Op: leave}, Owed: true}
			l.Add(c)
			require.Equal(t, StepLoad, l.Next(Now{}, "r1").Kind)
			l.Loaded(nil, Now{At: at, Sent: at, In: store.Generation{ID: "a", Epoch: "1"}})
			step := l.Next(Now{}, "r2")
			require.Equal(t, StepSwap, step.Kind)
			require.Equal(t, store.Generation{ID: "a", Epoch: "1"}, step.Swap.In)
			l.Abandon(c)
			l.Failed(errLost)
			l.Retry()
			require.Equal(t, StepLoad, l.Next(Now{}, "r3").Kind)
			l.Loaded(nil, Now{At: at, Sent: at, In: test.in})
			owes, _ := l.InDebt()
			require.Equal(t, test.owes, owes)
			step = l.Next(Now{}, "r4")
			require.Equal(t, test.owes, step.Kind == StepSwap, "%v", step.Kind)
			if test.owes {
				require.Equal(t, test.in, step.Swap.In)
			}
		})
	}
}
