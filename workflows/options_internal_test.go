package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestSagaOptions_NegativeCommitTimeout_IsRefused(t *testing.T) {
	t.Parallel()
	err := SagaOptions{CommitTimeout: -time.Second}.check()
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "SagaOptions.CommitTimeout", invalid.Field)
	require.Equal(t, "-1s", invalid.Value)
	require.NotEmpty(t, invalid.Bound)
	require.NoError(t, SagaOptions{}.check())
	require.NoError(t, SagaOptions{CommitTimeout: lockcore.Forever}.check())
}
