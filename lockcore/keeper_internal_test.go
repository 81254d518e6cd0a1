package lockcore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeeper_LeaseReplacedWhenItExpires_IsCheckedAgain(t *testing.T) {
	t.Parallel()
	l, err := NewWithStore(struct{ Store }{}, Config{})
	require.NoError(t, err)
	now := time.Now()
	old := Lease{Resource: "r", ttl: 30 * time.Second, validUntil: now.Add(-time.Millisecond)}
	s := &Session{locker: l, leases: []held{{Lease: old}}}
	s.cancel = func(error) {}
	s.ctx = t.Context()
	l.keeper.sessions[s] = true
	found, any := l.keeper.plan(now)
	require.True(t, any)
	require.Equal(t, []*Session{s}, found.over)

	renewed := old
	renewed.validUntil = now.Add(27 * time.Second)
	require.NoError(t, s.replace(renewed))
	s.expire(now)
	require.NoError(t, s.Lost())
	require.LessOrEqual(t, found.pause, time.Millisecond, "else nothing looks after it")

	require.NoError(t, s.replace(old))
	s.expire(now)
	require.ErrorIs(t, s.Lost(), ErrLost)
	require.ErrorIs(t, s.replace(renewed), ErrLost, "what was told is not taken back")
}
