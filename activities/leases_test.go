package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
)

func TestLeases_StepWithoutGuard_HasNone(t *testing.T) {
	t.Parallel()
	require.Nil(t, activities.Leases(t.Context()))
	_, ok := activities.Fence(t.Context(), "account/1")
	require.False(t, ok)
}
