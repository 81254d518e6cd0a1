package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestSagaOptions_NegativeReleaseTimeout_IsRefused(t *testing.T) {
	t.Parallel()
	err := SagaOptions{ReleaseTimeout: -time.Second}.check()
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "SagaOptions.ReleaseTimeout", invalid.Field)
	require.Equal(t, "-1s", invalid.Value)
	require.NotEmpty(t, invalid.Bound)
	require.NoError(t, SagaOptions{}.check())
	require.NoError(t, SagaOptions{ReleaseTimeout: lockcore.Forever}.check())
}
