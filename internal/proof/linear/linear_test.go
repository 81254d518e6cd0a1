package linear_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

// op is an operation of a history in which each begins after the one before it has ended.
type op struct {
	client int
	do     linear.Verb
	ok     bool
	fence  int64
}

func history(ops ...op) []linear.Operation {
	var h []linear.Operation
	for i, o := range ops {
		h = append(h, linear.Operation{
			Do: o.do, Resource: "r", Client: o.client, OK: o.ok, Fence: o.fence, From: time.Duration(2 * i), To: time.Duration(2*i + 1),
		})
	}
	return h
}

func check(h []linear.Operation) linear.Result { return linear.Check(h, time.Minute) }

var good = []op{
	{0, linear.TakeShared, true, 5}, {1, linear.TakeShared, true, 6}, {2, linear.TakeExclusive, false, 0}, {0, linear.Renew, true, 5},
	{0, linear.Leave, true, 0}, {1, linear.Release, true, 0}, {2, linear.TakeExclusive, true, 9}, {1, linear.TakeShared, false, 0},
	{1, linear.Renew, false, 0},
}

func TestCheck_HistoriesOfALock_AreLinearizable(t *testing.T) {
	t.Parallel()
	require.Equal(t, linear.Result{OK: true}, check(history(good...)))
	waits := history(op{0, linear.WaitExclusive, true, 5}, op{1, linear.WaitShared, false, 0}, op{0, linear.Leave, true, 0}, op{1, linear.WaitExclusive, false, 0})
	require.Equal(t, linear.Result{OK: true}, check(waits), "a wait can end without a grant")
	overlap := history(op{0, linear.TakeExclusive, true, 5}, op{0, linear.Leave, true, 0}, op{1, linear.TakeExclusive, true, 6})
	overlap[1].To = 10
	require.Equal(t, linear.Result{OK: true}, check(overlap), "a leave takes effect before its answer")
}

// The control: the model refuses histories that no lock can have.
func TestCheck_WrongHistories_AreRefused(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string][]op{
		"second exclusive holder":         append(slices.Clone(good), op{0, linear.TakeExclusive, true, 10}),
		"shared beside exclusive":         append(slices.Clone(good), op{0, linear.TakeShared, true, 10}),
		"renewal after leaving":           append(slices.Clone(good), op{0, linear.Renew, true, 5}),
		"loss reported to the holder":     append(slices.Clone(good), op{2, linear.Renew, false, 0}),
		"waiter beside exclusive":         append(slices.Clone(good), op{0, linear.WaitExclusive, true, 10}),
		"free resource refused":           {{0, linear.TakeShared, false, 0}},
		"fence granted twice":             {{0, linear.TakeShared, true, 5}, {1, linear.TakeShared, true, 5}},
		"smaller fence after a greater":   {{0, linear.TakeExclusive, true, 5}, {0, linear.Leave, true, 0}, {1, linear.TakeExclusive, true, 4}},
		"exclusive granted beside shared": {{0, linear.TakeShared, true, 5}, {1, linear.TakeExclusive, true, 6}},
	} {
		result := check(history(ops...))
		require.False(t, result.OK, name)
		require.False(t, result.Undecided, name)
		last := ops[len(ops)-1].do
		require.Contains(t, result.Seen, string(last), name)
	}
}

func TestCheck_FirstWrongAnswer_IsNamed(t *testing.T) {
	t.Parallel()
	ops := append(slices.Clone(good), op{0, linear.TakeExclusive, true, 10}, op{0, linear.Leave, true, 0}, op{1, linear.TakeShared, true, 11})
	result := check(history(ops...))
	require.Contains(t, result.Seen, "on r: client 0: take exclusive → granted with fence 10 (")
	require.NotContains(t, result.Seen, "fence 11")
}

// unknown returns a take of client 0 with an unknown outcome, its settlement, and takes of client 1 after the
// call and after the settlement.
func unknown(during, after bool) []linear.Operation {
	h := history(op{0, linear.TakeExclusive, false, 0}, op{1, linear.TakeShared, during, 7}, op{0, linear.Settle, true, 0}, op{1, linear.TakeShared, after, 9})
	h[0].Unknown, h[0].Try, h[2].Try = true, 1, 1
	h[0].To = h[2].To
	if during { // client 1 leaves, so that it can take again
		leave := linear.Operation{Do: linear.Leave, Resource: "r", Client: 1, OK: true, From: h[1].To, To: h[1].To}
		h = slices.Insert(h, 2, leave)
	}
	return h
}

func TestCheck_UnknownOutcome_MayHaveHappened(t *testing.T) {
	t.Parallel()
	require.True(t, check(unknown(false, true)).OK, "it was granted, and settled")
	require.True(t, check(unknown(true, true)).OK, "it was not granted, or later")
	require.False(t, check(unknown(false, false)).OK, "it holds although it was settled")
	require.False(t, check(unknown(true, false)).OK, "it came into force after it was settled")
}
