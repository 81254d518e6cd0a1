package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Histories have this text: a change that breaks this test breaks runs that continue others.
const handoverText = `{"from":"r2","started":"2026-01-02T03:04:05Z"}`

func TestHandover_Encoded_IsTheDocumentedText(t *testing.T) {
	t.Parallel()
	want := Handover{From: "r2", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	p, err := EncodeHandover(want)
	require.NoError(t, err)
	require.JSONEq(t, handoverText, string(p.GetData()))
	got, err := DecodeHandover(guardPayload(handoverText))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestStartHeaders_NotUnderstood_AreRefused(t *testing.T) {
	t.Parallel()
	_, err := DecodeHandover(guardPayload(`nonsense`))
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	_, err = DecodeOwner(guardPayload(`{}`))
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}

// Held counts only in the run that wrote the guard. A run that has the step from the run before a reset does not hold the resource.
func TestGuardRequest_OfAnotherRun_HoldsNothing(t *testing.T) {
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
