package transfer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func setup(t *testing.T) (*transfer.Bank, transfer.Transfer) {
	t.Helper()
	coll := testenv.Mongo(t).Collection("accounts")
	require.NoError(t, transfer.OpenAccounts(t.Context(), coll, 2, 1000))
	b := &transfer.Bank{Accounts: coll, Pause: time.Millisecond}
	return b, transfer.Transfer{ID: "t", From: transfer.AccountID(0), To: transfer.AccountID(1), Amount: 300}
}

func balances(t *testing.T, b *transfer.Bank) (from, to int64) {
	t.Helper()
	return balanceOf(t, b, transfer.AccountID(0)), balanceOf(t, b, transfer.AccountID(1))
}

func balanceOf(t *testing.T, b *transfer.Bank, id string) int64 {
	t.Helper()
	var a transfer.Account
	require.NoError(t, b.Accounts.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&a))
	return a.Balance
}

// A step is repeated if its worker was killed after the write.
func TestBank_RepeatedSteps_ApplyOnce(t *testing.T) {
	t.Parallel()
	b, tr := setup(t)
	for range 2 {
		require.NoError(t, b.Debit(t.Context(), tr))
		require.NoError(t, b.Credit(t.Context(), tr))
	}
	from, to := balances(t, b)
	require.EqualValues(t, 700, from)
	require.EqualValues(t, 1300, to)
	for range 2 {
		require.NoError(t, b.UndoCredit(t.Context(), tr))
		require.NoError(t, b.UndoDebit(t.Context(), tr))
	}
	from, to = balances(t, b)
	require.EqualValues(t, 1000, from)
	require.EqualValues(t, 1000, to)
}

// A compensation is registered before its step, so it may run before the step or without it.
func TestUndoDebit_BeforeDebit_PreventsIt(t *testing.T) {
	t.Parallel()
	b, tr := setup(t)
	require.NoError(t, b.UndoDebit(t.Context(), tr))
	require.NoError(t, b.Debit(t.Context(), tr))
	from, _ := balances(t, b)
	require.EqualValues(t, 1000, from)
}

func TestDebit_InsufficientFunds_IsRefused(t *testing.T) {
	t.Parallel()
	b, tr := setup(t)
	tr.Amount = 1001
	require.ErrorContains(t, b.Debit(t.Context(), tr), "account/0 has 1000 cents, and 1001 are wanted")
	from, _ := balances(t, b)
	require.EqualValues(t, 1000, from)
}

func TestCheck_SameSeed_FailsSameTransfers(t *testing.T) {
	t.Parallel()
	b := &transfer.Bank{Seed: 7, FailPercent: 20}
	var failed [2]int
	for run := range failed {
		for i := range 1000 {
			if b.Check(t.Context(), transfer.Transfer{Key: string(rune('a' + i))}) != nil {
				failed[run]++
			}
		}
	}
	require.Equal(t, failed[0], failed[1])
	require.InDelta(t, 200, failed[0], 80)
}
