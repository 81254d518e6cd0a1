package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The text is the protocol: a change that breaks this test breaks runs that have been handed something.
const handoverText = `{"from":"r2","lockRun":"r1","schedule":7,"steps":5,"started":"2026-01-02T03:04:05Z",` +
	`"saga":[{"name":"account/1","mode":"X","held":true}],"run":[{"name":"rates","mode":"S","limit":3}],` +
	`"holds":[{"resources":[{"name":"account/1","mode":"X","held":true}],"holdTtl":"1m0s","owner":"o","reacquire":true,"keepAlive":true}],` +
	`"lacks":["rates"],"former":["r0"]}`

func TestHandoverIsTheSameTextInEveryVersion(t *testing.T) {
	t.Parallel()
	held := lockcore.Exclusive("account/1")
	held.Held = true
	want := Handover{
		From: "r2", LockRun: "r1", Schedule: 7, Steps: 5, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Saga: []lockcore.Resource{held}, Run: []lockcore.Resource{lockcore.SharedLimit("rates", 3)},
		Holds: []Hold{{Resources: []lockcore.Resource{held}, HoldTTL: Duration(time.Minute), Owner: "o", Reacquire: true, KeepAlive: true}},
		Lacks: []string{"rates"}, Former: []string{"r0"},
	}
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

// A guard counts in the run that wrote it; a run that has it from the one before a reset locks in its own name, and holds nothing.
func TestAGuardOfAnotherRunHoldsNothing(t *testing.T) {
	t.Parallel()
	held := lockcore.Exclusive("account/1")
	held.Held = true
	g := Guard{Part: "1/A", Schedule: 1, Scope: ScopeSaga, Resources: []lockcore.Resource{held}, Run: "r2", LockRun: "r1"}
	run := Run{Cluster: "c", Namespace: "n", WorkflowID: "w", RunID: "r2"}
	first, other := run, run
	first.RunID, other.RunID = "r1", "r3"

	req := g.Request(run, 1, "")
	require.Equal(t, first.LockID(), req.LockID)
	require.True(t, req.Resources[0].Held)
	require.Equal(t, "w", req.Owner)

	req = g.Request(other, 1, "")
	require.Equal(t, other.LockID(), req.LockID)
	require.False(t, req.Resources[0].Held)
	require.True(t, g.Resources[0].Held, "the guard was changed")
}
