package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// batchEngine answers a renewal of many as its test says, and a renewal of one with an error if it has one.
type batchEngine struct {
	*lockcoretest.Engine
	renewed  []bool
	err, one error
}

func (e *batchEngine) Renew(ctx context.Context, op rules.Renew) (rules.Document, error) {
	if e.one != nil {
		return rules.Document{}, e.one
	}
	return e.Engine.Renew(ctx, op)
}

func (e *batchEngine) RenewAll(context.Context, []rules.Renew) ([]bool, error) {
	return e.renewed, e.err
}

func threeLeases(t *testing.T, l *lockcore.Locker) []lockcore.Lease {
	t.Helper()
	leases, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"), lockcore.Exclusive("r/3")), false)
	require.NoError(t, err)
	return leases
}

// each returns the errors that Renew has joined.
func each(t *testing.T, err error) []error {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%v", err)
	return joined.Unwrap()
}

func TestBatchThatTheDatabaseRefusesIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"not authorized": mongo.CommandError{Code: 13, Message: "not authorized"},
		"other layout":   &rules.LayoutError{Collection: "c", Found: "other"},
	} {
		e := &batchEngine{Engine: lockcoretest.NewEngine(time.Now), renewed: make([]bool, 3), err: refusal, one: refusal}
		l := on(t, e, lockcore.Config{})
		leases := threeLeases(t, l)
		kept, err := l.Renew(t.Context(), leases...)
		require.NotErrorIs(t, err, lockcore.ErrUnknownOutcome, name)
		require.Equal(t, leases, kept, "they stand as they were")
		errs := each(t, err)
		require.Len(t, errs, 3)
		for i, one := range errs {
			require.ErrorContains(t, one, `"`+leases[i].Resource+`"`)
			require.ErrorContains(t, one, refusal.Error())
		}
	}
}

func TestBatchWithoutAnAnswerIsToldToEachLeaseInItsOwnName(t *testing.T) {
	t.Parallel()
	e := &batchEngine{Engine: lockcoretest.NewEngine(time.Now), err: errCut, one: errCut}
	l := on(t, e, lockcore.Config{})
	leases := threeLeases(t, l)
	_, err := l.Renew(t.Context(), leases...)
	for i, one := range each(t, err) {
		var unknown *lockcore.UnknownOutcomeError
		require.ErrorAs(t, one, &unknown)
		require.Equal(t, leases[i].Resource, unknown.Resource)
		require.Equal(t, leases[i].Order, unknown.Order)
		require.ErrorIs(t, one, errCut)
	}
	require.Len(t, each(t, err), 3)
}

func TestWhatABatchRenewedBeforeItFailedIsRenewed(t *testing.T) {
	t.Parallel()
	e := &batchEngine{Engine: lockcoretest.NewEngine(time.Now), renewed: []bool{true, false, true}, err: errCut, one: errCut}
	l := on(t, e, lockcore.Config{})
	_, err := l.Renew(t.Context(), threeLeases(t, l)...)
	require.Len(t, each(t, err), 1)
	var unknown *lockcore.UnknownOutcomeError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "r/2", unknown.Resource)
}

// A batch only says of which it knows that they stand: what it leaves open is asked for, and nobody is lost by it.
func TestLeaseThatABatchDoesNotTellOfIsAskedForAndNotLost(t *testing.T) {
	t.Parallel()
	e := &batchEngine{Engine: lockcoretest.NewEngine(time.Now), renewed: []bool{true, false, false}}
	l := on(t, e, lockcore.Config{})
	leases := threeLeases(t, l)
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r/3"}, FirstFence: leases[2].FirstFence}))
	kept, err := l.Renew(t.Context(), leases...)
	require.Len(t, kept, 2)
	require.Equal(t, "r/2", kept[1].Resource)
	var lost *lockcore.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, "r/3", lost.Resource)
	require.Len(t, each(t, err), 1)
}
