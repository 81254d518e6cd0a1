package rules_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

func TestScenarios(t *testing.T) {
	for _, s := range scenarios.All() {
		t.Run(s.Name, func(t *testing.T) {
			s.Run(t, scenarios.NewRules(), "r")
		})
	}
}

func TestScenarios_NamesAreUnique(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range scenarios.All() {
		require.False(t, names[s.Name], "two scenarios named %q", s.Name)
		require.Contains(t, s.Name, "/")
		require.Less(t, len(strings.Fields(s.Name)), 20, s.Name)
		names[s.Name] = true
	}
}
