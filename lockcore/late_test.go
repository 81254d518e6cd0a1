package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// slowEngine holds acquires up on their way: while slow, each takes that long to arrive. It keeps what was sent.
type slowEngine struct {
	*lockcoretest.Engine
	slow time.Duration
	// once says that only the next one is slow.
	once bool
	sent []rules.Acquire
}

func (e *slowEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	e.sent = append(e.sent, op)
	op.Issued = op.Issued.Add(-e.slow)
	if e.once {
		e.slow = 0
	}
	return e.Engine.Acquire(ctx, op)
}

// TestCopyThatComesMinutesLaterTakesNothing is about a plain lock whose holder died: no record says that its request is over.
func TestCopyThatComesMinutesLaterTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &slowEngine{Engine: lockcoretest.NewEngine(time.Now)}
		l := on(t, e, lockcore.Config{})
		_, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		elapse(time.Hour)
		other, err := l.Enter(t.Context(), one("b", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		require.NoError(t, l.Leave(t.Context(), other...))
		d, err := e.Engine.Acquire(t.Context(), e.sent[0])
		require.NoError(t, err)
		require.Equal(t, rules.Late, d.Last.Outcome)
		require.Empty(t, e.Document("r").Entries)
	})
}

// TestRequestThatWasHeldUpIsSentAgain: it was held up once, so it is granted; and one that always is gives up.
func TestRequestThatWasHeldUpIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &slowEngine{Engine: lockcoretest.NewEngine(time.Now), slow: rules.CommandTimeout + time.Second}
		l := on(t, e, lockcore.Config{})
		_, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
		require.ErrorContains(t, err, "after it was sent")
		require.NotErrorIs(t, err, lockcore.ErrUnknownOutcome, "no copy of it can take effect any more")
		require.Len(t, e.sent, 3)
		require.Empty(t, e.Document("r").Entries)
		e.once = true
		_, err = l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
		require.Len(t, e.sent, 5)
	})
}

func TestACollectionHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	l, other := setup(t, lockcore.Config{}), setup(t, lockcore.Config{})
	again, err := lockcore.New(l.coll, lockcore.Config{})
	require.NoError(t, err)
	first, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, first)
	second, err := again.CollectionID(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, second)
	second, err = other.CollectionID(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	for s, err := range l.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		t.Errorf("it lists %+v", s)
	}
}

func TestACollectionOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	_, err := l.coll.UpdateByID(t.Context(), 0, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: rules.LayoutVersion + 1}}}})
	require.NoError(t, err)
	later, err := lockcore.New(l.coll, lockcore.Config{})
	require.NoError(t, err)
	var wrong *lockcore.LayoutError
	require.ErrorAs(t, later.CreateIndexes(t.Context()), &wrong)
	_, err = later.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "version 3")
}
