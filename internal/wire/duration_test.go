package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestDuration_JSON_IsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		`"30s"`: 30 * time.Second, `"1m30s"`: 90 * time.Second, `"100ms"`: 100 * time.Millisecond, `"forever"`: lockcore.Forever, `"0s"`: 0,
	} {
		var d Duration
		require.NoError(t, json.Unmarshal([]byte(text), &d))
		require.Equal(t, want, time.Duration(d))
		back, err := json.Marshal(d)
		require.NoError(t, err)
		var again Duration
		require.NoError(t, json.Unmarshal(back, &again))
		require.Equal(t, d, again)
	}
}

func TestDuration_NoUnit_IsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`30`, `"30"`, `"soon"`, `{}`, `true`, `9223372036854775807`} {
		var d Duration
		require.ErrorIs(t, json.Unmarshal([]byte(text), &d), lockcore.ErrInvalid, text)
	}
	var d Duration
	require.NoError(t, json.Unmarshal([]byte(`null`), &d))
	require.Zero(t, d)
}

func FuzzDuration(f *testing.F) {
	f.Add(int64(0))
	f.Add(int64(lockcore.Forever))
	f.Add(int64(-1))
	f.Fuzz(func(t *testing.T, n int64) {
		text, err := json.Marshal(Duration(n))
		require.NoError(t, err)
		var d Duration
		require.NoError(t, json.Unmarshal(text, &d))
		require.Equal(t, Duration(n), d)
	})
}
