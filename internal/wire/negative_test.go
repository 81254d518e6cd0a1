package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestDecodeGuard_NegativeDuration_IsRefused(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"ttl", "holdTtl", "maxWait"} {
		_, err := DecodeGuard(guardPayload(`{"scope":"step","resources":[{"name":"r"}],"` + field + `":"-1s"}`))
		requireNegative(t, err, field)
	}
	_, err := DecodeGuard(guardPayload(`{"scope":"saga","resources":[{"name":"r"}],"ttl":"forever","holdTtl":"forever","maxWait":"1s"}`))
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
