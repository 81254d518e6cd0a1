package scenarios_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestScenarios_InMemory(t *testing.T) {
	t.Parallel()
	play(t, store.NewMemory(time.Now))
}

func TestScenarios_MongoDB(t *testing.T) {
	t.Parallel()
	s := store.New(testenv.Mongo(t).Collection("locks"))
	require.NoError(t, s.Prepare(t.Context()))
	play(t, s)
}

// play plays all scenarios, on one store and by one process.
func play(t *testing.T, s store.Store) {
	t.Helper()
	h := scenarios.NewLines(t.Context(), s)
	t.Cleanup(h.Close)
	t.Run("all", func(t *testing.T) { // ends with the last of them
		for _, scenario := range scenarios.All() {
			t.Run(scenario.Name, func(t *testing.T) {
				t.Parallel()
				scenario.Run(t, h, t.Name())
			})
		}
	})
}
