package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The sagas lock two accounts in both orders, and the bank reads, computes and writes.
func TestRun_ProgramOfREADME_Succeeds(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), testenv.TemporalAddress(t), testenv.Mongo(t), testenv.TaskQueue(t), &out))
	require.Equal(t, "20 workflows ended well; ada has 0, ben has 2000\n", out.String())
}

// A step that timed out may have been applied, or not. Its compensation restores the balance in both cases, and may run twice.
func TestBank_Undo_RestoresTheBalance(t *testing.T) {
	t.Parallel()
	b := &Bank{Accounts: testenv.Mongo(t).Collection("accounts")}
	env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
	env.RegisterActivity(b)
	payment := Payment{From: "ada", To: "ben", Cents: 100}
	for _, steps := range [][]any{
		{b.Debit, b.Debit, b.Refund, b.Refund}, {b.Refund}, {b.Credit, b.TakeBack, b.TakeBack}, {b.TakeBack},
	} {
		require.NoError(t, b.Open(t.Context(), "ada", "ben"))
		for _, step := range steps {
			_, err := env.ExecuteActivity(step, payment)
			require.NoError(t, err)
		}
		balances, err := b.Balances(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"ada": 1000, "ben": 1000}, balances)
	}
}
