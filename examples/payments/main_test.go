package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
