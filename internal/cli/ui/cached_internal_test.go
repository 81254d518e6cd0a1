package ui

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The home page must not wait for a round of questions to Temporal. It shows the result of the round before.
func TestCached_LateRead_IsShownNextTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		c := cached[int]{minPause: time.Second, read: func(context.Context) (int, error) {
			<-time.After(time.Minute / 2)
			reads++
			return reads, nil
		}}
		soon := func() (int, bool) {
			began := time.Now()
			v, err, ok := c.soon(t.Context(), time.Now().Add(moment))
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(began), moment)
			return v, ok
		}
		_, ok := soon()
		require.False(t, ok, "nothing is known yet")
		_, ok = soon()
		require.False(t, ok, "one read at a time")
		<-time.After(time.Minute)
		v, ok := soon()
		require.True(t, ok)
		require.Equal(t, 1, v)
		<-time.After(10 * time.Minute) // it pauses for ten times as long as it read
		v, _ = soon()
		require.Equal(t, 1, v, "the read before")
		<-time.After(time.Minute)
		v, _ = soon()
		require.Equal(t, 2, v)
	})
}
