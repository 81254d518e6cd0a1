package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The text is the protocol: a change that breaks this test breaks runs that continue others.
const handoverText = `{"from":"r2","started":"2026-01-02T03:04:05Z"}`

func TestHandoverIsTheSameTextInEveryVersion(t *testing.T) {
	t.Parallel()
	want := Handover{From: "r2", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	p, err := EncodeHandover(want)
	require.NoError(t, err)
	require.JSONEq(t, handoverText, string(p.GetData()))
	got, err := DecodeHandover(guardPayload(handoverText))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestHeadersOfAStartThatAreNotUnderstoodAreRefused(t *testing.T) {
	t.Parallel()
	_, err := DecodeHandover(guardPayload(`nonsense`))
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	_, err = DecodeOwner(guardPayload(`{}`))
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}

// What a guard says to be held counts in the run that wrote it. One that has it from the run before a reset has not got it.
func TestAGuardOfAnotherRunHoldsNothing(t *testing.T) {
	t.Parallel()
	held := lockcore.Exclusive("account/1")
	held.Held = true
	g := Guard{Part: "1/A", Schedule: 1, Scope: ScopeSaga, Resources: []lockcore.Resource{held}, Run: "r2"}
	run := Run{Namespace: "n", WorkflowID: "w", RunID: "r2"}
	other := run
	other.RunID = "r3"

	req := g.Request(run, 1, "")
	require.True(t, req.Resources[0].Held)
	require.Equal(t, []string{"n/w", "n/w", "r2", "r2/1/A"}, []string{req.LockID, req.Owner, req.Run, req.Part})

	req = g.Request(other, 1, "")
	require.False(t, req.Resources[0].Held)
	require.Equal(t, []string{"n/w", "n/w", "r3", "r3/1/A"}, []string{req.LockID, req.Owner, req.Run, req.Part})
	require.True(t, g.Resources[0].Held, "the guard was changed")
}
