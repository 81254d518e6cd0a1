package interceptors

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// doors answers acquires with the given errors, one after the other, and then lets in.
type doors struct {
	*releases
	mu       sync.Mutex
	answers  []error
	requests []party.Request
	// released lists the releases after the run had closed.
	released []party.Release
}

func (d *doors) TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error) {
	return d.Enter(ctx, req)
}

func (d *doors) Enter(_ context.Context, req party.Request) ([]lockcore.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, req)
	if len(d.requests) <= len(d.answers) {
		return nil, d.answers[len(d.requests)-1]
	}
	return []lockcore.Lease{{Resource: account.Name, LockID: req.LockID, Part: req.Part, Order: req.Order, Mode: lockcore.ModeExclusive, Fence: 7}}, nil
}

func (d *doors) WatchFor(string) {}

func (d *doors) Recheck(context.Context, party.Request) (time.Duration, error) {
	return 0, nil
}

func (d *doors) LeaveQueue(context.Context, ...lockcore.Lease) error { return nil }

func (d *doors) Leave(context.Context, ...lockcore.Lease) error { return nil }

// lockOnce runs a workflow that takes and releases one lock.
func lockOnce(t *testing.T, d *doors, l workflows.Locks) error {
	t.Helper()
	d.releases = &releases{}
	l.Resources = []lockcore.Resource{account}
	var taken error
	d.Locker = d
	own := &fakeLocker{}
	err := runWorkflow(t, workflowEnv(t, with(own)), d.releases, func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, l)
		taken = err
		if hold == nil {
			return nil
		}
		return errors.Join(hold.Release(ctx), hold.Release(ctx))
	})
	require.NoError(t, err)
	d.released = own.released
	return taken
}

func TestLock_FirstAttemptGotNothing_AsksAgainInALaterOrder(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"database": errors.New("no primary"), "full": &lockcore.BusyError{Resource: account.Name, Full: true},
	} {
		d := &doors{answers: []error{answer}}
		require.NoError(t, lockOnce(t, d, workflows.Locks{MaxWait: time.Hour}), name)
		require.Len(t, d.requests, 2, name)
		first, second := d.requests[0], d.requests[1]
		require.Equal(t, "default-test-run-id/lock/1", first.Part)
		require.Equal(t, first.Part, second.Part)
		require.True(t, first.Order.Schedule < second.Order.Schedule || first.Order.Attempt < second.Order.Attempt, name)
		require.True(t, first.Persist && first.Reacquire && !first.Resources[0].Held)
		require.Len(t, d.seen, 1)
		require.Equal(t, party.LastAttempt(second.Order.Schedule), d.seen[0].Uses[0].By)
	}
}

func TestALockThatCannotBeHadIsReleasedUnlessNothingCanBeLeft(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer   error
		try      bool
		releases int
	}{
		"lost":    {answer: &lockcore.LostError{Resource: account.Name}, releases: 1},
		"invalid": {answer: &lockcore.InvalidError{Field: "f"}},
		"tried":   {answer: &lockcore.BusyError{Resource: account.Name}, try: true},
	} {
		d := &doors{answers: []error{tc.answer}}
		err := lockOnce(t, d, workflows.Locks{Try: tc.try})
		require.Equal(t, tc.answer.Error(), workflows.LockError(err).Error(), name)
		for _, sentinel := range []error{lockcore.ErrLost, lockcore.ErrInvalid, lockcore.ErrBusy} {
			require.Equal(t, errors.Is(tc.answer, sentinel), errors.Is(err, sentinel), name)
		}
		require.Len(t, d.requests, 1, name)
		require.Len(t, d.released, tc.releases, name)
	}
}
