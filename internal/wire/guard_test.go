package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func guardPayload(text string) *commonpb.Payload {
	return &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(text)}
}

// Histories have this text: a change that breaks this test breaks running workflows.
const guardText = `{"part":"3/Debit","schedule":4,"scope":"saga",` +
	`"resources":[{"name":"account/1","mode":"X","heldSince":3},{"name":"rates","mode":"S","limit":3}],` +
	`"ttl":"30s","holdTtl":"forever","reacquire":true,"newFence":true,"saga":"1","owner":"me"}`

func TestGuard_Encoded_IsTheDocumentedText(t *testing.T) {
	t.Parallel()
	held := Resource{lockcore.Exclusive("account/1"), 3}
	want := Guard{
		Part: "3/Debit", Schedule: 4, Scope: ScopeSaga, Resources: []Resource{held, {Resource: lockcore.SharedLimit("rates", 3)}},
		TTL: Duration(30 * time.Second), HoldTTL: Duration(lockcore.Forever), Reacquire: true, NewFence: true, Saga: "1", Owner: Owner{Name: "me"},
	}
	p, err := EncodeHeader(nil, "n", "w", want)
	require.NoError(t, err)
	require.JSONEq(t, guardText, string(p.GetData()))
	got, err := DecodeGuard(nil, "n", "w", guardPayload(guardText))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestDecodeGuard_UnknownField_IsIgnored(t *testing.T) {
	t.Parallel()
	got, err := DecodeGuard(nil, "n", "w", guardPayload(`{"part":"1/A","schedule":1,"scope":"step","resources":[{"name":"r"}],"later":{"x":1}}`))
	require.NoError(t, err)
	require.Equal(t, "r", got.Resources[0].Name)
}

func TestDecodeGuard_NotUnderstood_IsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON": `nonsense`, "no scope": `{}`, "unknown scope": `{"scope":"galaxy","resources":[{"name":"r"}]}`, "bare ttl": `{"scope":"step","ttl":30}`,
	} {
		_, err := DecodeGuard(nil, "n", "w", guardPayload(text))
		require.ErrorIs(t, err, lockcore.ErrInvalid, name)
	}
	_, err := DecodeGuard(nil, "n", "w", &commonpb.Payload{})
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}

func TestGuardRequest_EachScope_NamesItsParty(t *testing.T) {
	t.Parallel()
	g, err := DecodeGuard(nil, "n", "w", guardPayload(guardText))
	require.NoError(t, err)
	run := Run{Namespace: "n", WorkflowID: strings.Repeat("w", 600), RunID: "r"}
	req := g.Request(run, 7, strings.Repeat("x", 2000))
	require.Equal(t, lockcore.StepRequest{
		Caller:    lockcore.Caller{LockID: run.LockID(), Run: "r", Part: "r/3/Debit", Order: lockcore.Order{Schedule: 4, Attempt: 7}, Saga: "1"},
		Resources: []lockcore.Resource{lockcore.Exclusive("account/1"), lockcore.SharedLimit("rates", 3)}, HeldSince: map[string]uint32{"account/1": 3},
		TTL: 30 * time.Second, Keep: true, HoldTTL: lockcore.Forever, Reacquire: true, NewFence: true, Owner: "me", Comment: strings.Repeat("x", 1024),
	}, req)

	g.Undoes = "2/Debit"
	require.False(t, g.Request(run, 1, "").NewFence, "it has the fence of its bar")

	g.Scope, g.Owner = ScopeStep, Owner{}
	req = g.Request(run, 1, "")
	require.Equal(t, run.StepLockID("3/Debit"), req.LockID)
	require.Equal(t, run.LockID(), req.Within)
	require.True(t, req.Keep, "while it waits for the rest")
	require.Zero(t, req.HoldTTL)
	g.Resources = g.Resources[:1]
	require.False(t, g.Request(run, 1, "").Keep)
	require.Equal(t, run.Owner(), req.Owner)
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte(guardText))
	f.Add([]byte(`{"scope":"step","schedule":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := DecodeGuard(nil, "n", "w", guardPayload(string(data)))
		if err != nil {
			require.ErrorIs(t, err, lockcore.ErrInvalid)
			return
		}
		p, err := EncodeHeader(nil, "n", "w", g)
		require.NoError(t, err)
		again, err := DecodeGuard(nil, "n", "w", p)
		require.NoError(t, err)
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(again)
		require.Equal(t, string(a), string(b))
	})
}

func TestMerge_NameTwice_KeepsTheStrongerRequest(t *testing.T) {
	t.Parallel()
	a := []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}
	got := Merge(a, lockcore.Exclusive("a"), lockcore.SharedLimit("c", 5), lockcore.Shared("b"), lockcore.SharedLimit("c", 3))
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b"), lockcore.SharedLimit("c", 3)}, got)
	require.Equal(t, []lockcore.Resource{lockcore.Shared("a"), lockcore.Exclusive("b")}, a, "the argument has changed")
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a")}, Merge(nil, lockcore.Exclusive("a"), lockcore.Exclusive("a")))
	require.Equal(t, []lockcore.Resource{{Name: "a"}}, Merge(nil, lockcore.Shared("a"), lockcore.Resource{Name: "a"}), "the default mode is exclusive")
	require.Nil(t, Merge(nil))
}

// A valid request for the same name must not hide an invalid one, which is refused when the locks are taken.
func TestMerge_InvalidRequest_IsKept(t *testing.T) {
	t.Parallel()
	for name, invalid := range map[string]lockcore.Resource{
		"mode": {Name: "a", Mode: "Z"}, "limit": lockcore.SharedLimit("a", -1), "no places": lockcore.SharedLimit("a", 0),
		"limit of X": {Name: "a", Mode: lockcore.ModeExclusive, Limit: 2},
	} {
		for _, valid := range []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Shared("a"), lockcore.SharedLimit("a", 2), {Name: "a"}} {
			require.Equal(t, []lockcore.Resource{invalid}, Merge(nil, valid, invalid), name)
			require.Equal(t, []lockcore.Resource{invalid}, Merge(nil, invalid, valid), name)
		}
	}
}

func TestDecodeGuard_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"ttl", "holdTtl", "maxWait"} {
		_, err := DecodeGuard(nil, "n", "w", guardPayload(`{"scope":"step","resources":[{"name":"r"}],"`+field+`":"-1s"}`))
		requireNegative(t, err, field)
	}
	_, err := DecodeGuard(nil, "n", "w", guardPayload(`{"scope":"saga","resources":[{"name":"r"}],"ttl":"forever","holdTtl":"forever","maxWait":"1s"}`))
	require.NoError(t, err)
}

func TestWaitParams_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	requireNegative(t, WaitParams{MaxWait: Duration(-time.Second)}.Check(), "maxWait")
	require.NoError(t, WaitParams{}.Check())
	require.NoError(t, WaitParams{MaxWait: Duration(lockcore.Forever)}.Check())
}

func requireNegative(t *testing.T, err error, field string) {
	t.Helper()
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid, field)
	require.Equal(t, field, invalid.Field)
	require.Equal(t, "-1s", invalid.Value)
	require.NotEmpty(t, invalid.Bound)
}

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
func TestGuardRequest_AfterAReset_CountsLossesOfEarlierRuns(t *testing.T) {
	t.Parallel()
	held := Resource{lockcore.Exclusive("account/1"), 3}
	g := Guard{Part: "1/A", Schedule: 1, Scope: ScopeSaga, Resources: []Resource{held}, Run: "r2", Started: time.Unix(600, 0)}
	run := Run{Namespace: "n", WorkflowID: "w", RunID: "r2"}
	other := run
	other.RunID = "r3"

	req := g.Request(run, 1, "")
	require.Equal(t, map[string]uint32{"account/1": 3}, req.HeldSince)
	require.Zero(t, req.LostSince)
	require.Equal(t, []string{"n/w", "n/w", "r2", "r2/1/A"}, []string{req.LockID, req.Owner, req.Run, req.Part})

	req = g.Request(other, 1, "")
	require.Equal(t, time.Unix(540, 0), req.LostSince)
	require.Equal(t, []string{"n/w", "n/w", "r3", "r3/1/A"}, []string{req.LockID, req.Owner, req.Run, req.Part})
	g.Inherits = true
	require.Equal(t, time.Unix(540, 0), g.Request(run, 1, "").LostSince)
	g.Reacquire = true
	require.Zero(t, g.Request(run, 1, "").LostSince)
}
