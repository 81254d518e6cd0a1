package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// stepSession starts the session of a step.
func stepSession(t *testing.T, l *lockcore.Steps, left time.Duration, req lockcore.StepRequest) *lockcore.Session {
	t.Helper()
	leases, err := l.TryEnter(t.Context(), req)
	require.NoError(t, err)
	return l.NewStepSession(t.Context(), leases, left)
}

// The program stops its workers and closes the Locker, and a step does not end at once: it keeps its lock until it has left.
func TestClose_StepStillRuns_WaitsForIt(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		other := newLocker(t, db.Store, lockcore.Config{})
		step := stepSession(t, l, 0, withTTL(10*time.Second, request("step", lockcore.Exclusive("r"))))
		closed := make(chan error, 1)
		go func() { closed <- l.Close(context.Background()) }()
		<-step.Context().Done()
		require.ErrorIs(t, context.Cause(step.Context()), lockcore.ErrClosed)
		elapse(time.Minute)
		require.NoError(t, step.Lost(), "it is renewed")
		_, err := other.TryEnter(t.Context(), request("other", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrBusy)
		require.Empty(t, closed)
		require.NoError(t, step.Leave(t.Context()))
		require.NoError(t, <-closed)
		require.Empty(t, db.Document("r").Entries)
		late := l.NewStepSession(t.Context(), step.Leases(), 0)
		require.ErrorIs(t, context.Cause(late.Context()), lockcore.ErrClosed)
	})
}

func TestClose_StepHangs_LeavesItsLockToExpire(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, db *faultStore) {
		other := newLocker(t, db.Store, lockcore.Config{})
		step := stepSession(t, l, 0, withTTL(10*time.Second, request("step", lockcore.Exclusive("r"))))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1 step is still running")
		_, err = other.TryEnter(t.Context(), request("other", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrBusy, "it may still trust its lock")
		elapse(10 * time.Second)
		enter(t, other, request("other", lockcore.Exclusive("r")))
		require.ErrorIs(t, step.Leave(t.Context()), lockcore.ErrClosed)
	})
}

// The caller of a step that hangs has stopped waiting. The step's lock expires, and until then others are kept out.
func TestStepSession_NobodyWaits_IsNotRenewed(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, _ *faultStore) {
		const ttl = 9 * time.Second
		step := stepSession(t, l, time.Minute, withTTL(ttl, request("step", lockcore.Exclusive("r"))))
		plain := tryAcquire(t, l, withTTL(ttl, request("plain", lockcore.Exclusive("s"))))
		elapse(time.Minute - 100*time.Millisecond)
		require.NoError(t, step.Context().Err())
		elapse(200 * time.Millisecond)
		require.ErrorIs(t, context.Cause(step.Context()), context.DeadlineExceeded)
		require.NoError(t, step.Lost())
		_, err := l.TryEnter(t.Context(), request("other", lockcore.Exclusive("r")))
		require.ErrorIs(t, err, lockcore.ErrBusy)
		elapse(ttl)
		enter(t, l, request("other", lockcore.Exclusive("r")))
		require.NoError(t, plain.Context().Err())
		require.NoError(t, step.Leave(t.Context()))
		require.NoError(t, plain.Leave(t.Context()))
	})
}

// A lease without an end is left during an outage: the Locker leaves it as soon as the database answers.
func TestLeave_EndlessLeaseDuringOutage_IsLeftLater(t *testing.T) {
	end := map[string]func(ctx context.Context, l *lockcore.Steps, s *lockcore.Session) error{
		"leave": func(ctx context.Context, _ *lockcore.Steps, s *lockcore.Session) error { return s.Leave(ctx) },
		"leave within": func(ctx context.Context, l *lockcore.Steps, s *lockcore.Session) error {
			return l.LeaveWithin(ctx, 50*time.Millisecond, s)
		},
		"release": func(ctx context.Context, _ *lockcore.Steps, s *lockcore.Session) error { return s.Release(ctx) },
	}
	eachCase(t, end, func(t *testing.T, l *lockcore.Steps, db *faultStore, end func(ctx context.Context, l *lockcore.Steps, s *lockcore.Session) error) {
		step := stepSession(t, l, 0, endless("step", lockcore.Exclusive("r")))
		db.set(failing(errCut), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.Error(t, end(ctx, l, step))
		elapse(10 * time.Minute)
		require.NotEmpty(t, db.Document("r").Entries)
		db.set(nil, nil)
		elapse(time.Minute)
		synctest.Wait()
		require.Empty(t, db.Document("r").Entries)
	})
}
