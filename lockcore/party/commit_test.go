package party_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// committing is a saga of the run "one" that has used r by its scheduling 1, and s by 2.
type committing struct {
	*testing.T
	*party.Locker
	commit party.Commit
}

// commits runs fn for such a saga, which holds both.
func commits(t *testing.T, fn func(c *committing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &committing{T: t, Locker: on(t, lockcoretest.NewStore(time.Now), party.Config{TTL: time.Second, HoldTTL: time.Minute})}
		c.commit = party.Commit{
			LockID: "w", Run: "one", Resources: []string{"r", "s"}, Order: party.LastAttempt(2),
			Uses: []party.Use{{Resource: "r", By: party.LastAttempt(1)}, {Resource: "s", By: party.LastAttempt(2)}},
		}
		c.use("r", "one", 1)
		c.use("s", "one", 2)
		fn(c)
	})
}

func (c *committing) use(resource, label string, schedule uint32, changes ...func(*party.Request)) {
	c.Helper()
	changes = append(changes, func(req *party.Request) {
		req.Resources, req.Order.Schedule = []party.Resource{party.Exclusive(resource)}, schedule
	})
	leases, err := c.Enter(c.Context(), run(label, "step", changes...), false)
	require.NoError(c, err)
	require.NoError(c, c.Leave(c.Context(), leases...))
}

// other takes a resource, as another party, and lets it go.
func (c *committing) other(resource string) {
	c.Helper()
	leases, err := c.Enter(c.Context(), party.Request{LockID: "other", Resources: []party.Resource{party.Exclusive(resource)}}, false)
	require.NoError(c, err, "%s is not free", resource)
	require.NoError(c, c.Leave(c.Context(), leases...))
}

func (c *committing) requireHeld(resource string) {
	c.Helper()
	_, err := c.Enter(c.Context(), party.Request{LockID: "other", Resources: []party.Resource{party.Exclusive(resource)}}, false)
	require.ErrorIs(c, err, party.ErrBusy)
}

func reacquire(req *party.Request) { req.Reacquire = true }

func TestACommitReleasesWhatIsHeldAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		for range 2 {
			require.NoError(c, c.Commit(c.Context(), c.commit))
			c.other("r")
			c.other("s")
		}
	})
}

// One resource takes one write, which has to ask the same questions.
func TestACommitOfOneResourceEndsNothingThatBeganLater(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		c.commit.Resources, c.commit.Uses = []string{"s"}, []party.Use{{Resource: "s", By: party.LastAttempt(1)}}
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
		c.requireHeld("s")
		c.commit.Uses[0].By = party.Order{} // no order, and not no question
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
		c.requireHeld("s")
		c.commit.Uses[0].By = party.LastAttempt(2)
		for range 2 {
			require.NoError(c, c.Commit(c.Context(), c.commit))
			c.other("s")
		}
		c.requireHeld("r")
	})
}

func TestACommitThatFindsALossReleasesNothing(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		elapse(time.Minute)
		c.other("r")
		var lost *party.LostError
		err := c.Commit(c.Context(), c.commit)
		require.ErrorAs(c, err, &lost)
		require.Equal(c, "r", lost.Resource)
		require.Equal(c, "other", lost.By)
		c.requireHeld("s")
		c.commit.Uses = nil
		require.NoError(c, c.Commit(c.Context(), c.commit))
		c.other("s")
	})
}

// A step that completed, and of which no hold was made by then, was run without its lock.
func TestACommitFindsAHoldThatWasNeverMadeOrTooLate(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		c.commit.Uses[1].By = party.LastAttempt(1)
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
		c.commit.Uses[1] = party.Use{Resource: "never", By: party.LastAttempt(2)}
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
		c.requireHeld("s")
		c.commit.Inherits = true // a run before may have released it
		require.NoError(c, c.Commit(c.Context(), c.commit))
		c.other("s")
	})
}

// The step that was scheduled first came second.
func TestACommitFindsAHoldThatALaterStepMadeAndAnEarlierOneJoined(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		c.use("t", "one", 3)
		c.use("t", "one", 1, func(req *party.Request) { req.Part += " beside it" })
		c.commit.Uses = append(c.commit.Uses, party.Use{Resource: "t", By: party.LastAttempt(1)})
		require.NoError(c, c.Commit(c.Context(), c.commit))
	})
}

// The hold was lost, and taken again by a later step.
func TestACommitFindsAHoldThatWasTakenAgain(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		elapse(time.Minute)
		c.other("r")
		c.use("r", "one", 2, reacquire)
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
		c.requireHeld("r")
	})
}

// The first try had released r, where another party is by now, when it was cut off.
func TestACommitThatHadBegunToReleaseGoesOn(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		require.NoError(c, c.Release(c.Context(), party.Release{LockID: "w", Run: "one", Resources: []string{"r"}, Order: c.commit.Order}))
		c.other("r")
		require.NoError(c, c.Commit(c.Context(), c.commit))
		c.other("s")
	})
}

func TestACommitTakesOverFromTheRunBefore(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		c.commit.Run, c.commit.Inherits = "two", true
		var other *party.OtherRunError
		require.ErrorAs(c, c.Commit(c.Context(), c.commit), &other)
		require.Equal(c, "one", other.Other)
		c.requireHeld("s")
		c.commit.TakeOver = other.Other
		require.NoError(c, c.Commit(c.Context(), c.commit))
		c.other("r")
		c.other("s")
	})
}

// The run before lost a hold which the next one has never had: that is a loss of the next one too.
func TestACommitFindsWhatTheRunBeforeLost(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		elapse(time.Minute)
		c.other("r")
		c.commit.Run, c.commit.Inherits, c.commit.TakeOver = "two", true, "one"
		require.NoError(c, c.Commit(c.Context(), c.commit), "whose loss that was is not said")
	})
	commits(t, func(c *committing) {
		elapse(time.Minute)
		c.other("r")
		c.commit.Run, c.commit.Inherits, c.commit.TakeOver, c.commit.Before = "two", true, "one", []string{"one"}
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
	})
}

// The first run was reset, and reset again: the last one does not know of the run between, which had gone on with the hold.
func TestACommitFindsWhatARunLostThatHadReplacedTheFirst(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		c.use("r", "two", 3, func(req *party.Request) { req.TakeOver = "one" })
		elapse(time.Minute)
		c.other("r")
		c.commit.Run, c.commit.Inherits, c.commit.TakeOver, c.commit.Before = "three", true, "one", []string{"one"}
		require.ErrorIs(c, c.Commit(c.Context(), c.commit), party.ErrLost)
	})
}

func TestACommitIsRefusedThatNamesNoRunOrAWrongResource(t *testing.T) {
	t.Parallel()
	commits(t, func(c *committing) {
		for field, wrong := range map[string]party.Commit{
			"Commit.LockID": {Run: "one", Order: c.commit.Order}, "Commit.Run": {LockID: "w", Order: c.commit.Order},
			"Commit.Resources[0]":     {LockID: "w", Run: "one", Order: c.commit.Order, Resources: []string{""}},
			"Commit.Uses[0].Resource": {LockID: "w", Run: "one", Order: c.commit.Order, Uses: []party.Use{{}}},
		} {
			var invalid *party.InvalidError
			require.ErrorAs(c, c.Commit(c.Context(), wrong), &invalid)
			require.Equal(c, field, invalid.Field)
		}
	})
}

// Its repetition finds nothing held. That is the commit's own doing, and no loss: not for the caller, and not in what is counted.
func TestACommitOfOneResourceWhoseAnswerIsLostIsNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, reader := faulty(), metric.NewManualReader()
		c := &committing{T: t, Locker: on(t, db, party.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})}
		c.use("s", "one", 2)
		c.commit = party.Commit{
			LockID: "w", Run: "one", Resources: []string{"s"}, Order: party.LastAttempt(2), Uses: []party.Use{{Resource: "s", By: party.LastAttempt(2)}},
		}
		lost := 0
		db.set(nil, times(1, func(context.Context, command) error {
			lost++
			return errCut
		}, ends("w")))
		require.NoError(c, c.Commit(c.Context(), c.commit))
		require.Equal(c, 1, lost)
		c.other("s")
		var all metricdata.ResourceMetrics
		require.NoError(c, reader.Collect(c.Context(), &all))
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				require.NotEqual(c, telemetry.Lost.Name, m.Name)
			}
		}
	})
}
