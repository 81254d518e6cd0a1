package lockcore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func threeLeases(t *testing.T, l *lockcore.Steps) []lockcore.Lease {
	t.Helper()
	leases := enter(t, l, request("a", lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"), lockcore.Exclusive("r/3")))
	return leases
}

// each returns the errors that Renew has joined.
func each(t *testing.T, err error) []error {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%v", err)
	return joined.Unwrap()
}

func TestRenewal_ThatWasNotSent_IsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	layout := &rules.LayoutError{Collection: "c", Found: "other"}
	for name, refusal := range map[string]error{"no server": errNotSent, "other layout": fmt.Errorf("%w: %w", errNotSent, layout)} {
		l, e := inMemory(t, lockcore.Config{})
		leases := threeLeases(t, l)
		e.set(failing(refusal, of(kindExtend, kindSwap)), nil)
		kept, err := l.Renew(t.Context(), leases...)
		require.NotErrorIs(t, err, lockcore.ErrUnknownOutcome, name)
		require.Equal(t, leases, kept, "they stand as they were")
		errs := each(t, err)
		require.Len(t, errs, 3)
		for i, one := range errs {
			if errors.As(refusal, new(*rules.LayoutError)) {
				require.EqualError(t, errorAs[*lockcore.LayoutError](t, one), layout.Error(), "which names the collection")
			} else {
				require.ErrorContains(t, one, refusal.Error())
				require.ErrorContains(t, one, `"`+leases[i].Resource+`"`)
			}
		}
	}
}

// A failure that a server reports proves nothing: a router may have applied the command.
func TestRenewal_WithoutAnAnswer_IsUnknownForEachLease(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"cut": errCut, "error of the server": mongo.CommandError{Code: 13, Message: "not authorized"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, e := inMemory(t, lockcore.Config{})
			leases := threeLeases(t, l)
			e.set(failing(failure, of(kindExtend, kindSwap)), nil)
			_, err := l.Renew(t.Context(), leases...)
			for i, one := range each(t, err) {
				unknown := errorAs[*lockcore.UnknownOutcomeError](t, one)
				require.Equal(t, leases[i].Resource, unknown.Resource)
				require.Equal(t, leases[i].Order, unknown.Order)
				require.ErrorContains(t, one, failure.Error())
			}
			require.Len(t, each(t, err), 3)
		})
	}
}

func TestRenewal_BatchThatFails_IsRenewedOneByOne(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	leases := threeLeases(t, l)
	e.set(both(cutting(of(kindExtend)), cutting(of(kindSwap), onResource("r/2"))), nil)
	_, err := l.Renew(t.Context(), leases...)
	require.Len(t, each(t, err), 1)
	unknown := errorAs[*lockcore.UnknownOutcomeError](t, err)
	require.Equal(t, "r/2", unknown.Resource)
	for _, name := range []string{"r/1", "r/3"} {
		require.NotNil(t, e.Document(name).Entries[0].RenewedAt)
	}
}

// A batch that finds fewer documents than it names proves nothing of any one of them.
func TestRenewal_BatchThatMissesOne_AsksForEach(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	leases := threeLeases(t, l)
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "a", Resources: []string{"r/3"}, FirstFence: leases[2].FirstFence, Order: leases[2].Order, Leaving: &leases[2].Part}))
	kept, err := l.Renew(t.Context(), leases...)
	require.Len(t, kept, 2)
	require.Equal(t, "r/2", kept[1].Resource)
	lost := errorAs[*lockcore.LostError](t, err)
	require.Equal(t, "r/3", lost.Resource)
	require.Len(t, each(t, err), 1)
}

// The part of a lease has ended, and the document has another entry of its lock ID. A caller may give the same Call
// to requests of several parts and orders, and a renewal also extends the kept hold when half of its time is over.
func TestRenew_PartEnded_IsLostDespiteAnotherEntry(t *testing.T) {
	eachCase(t, map[string]func(*lockcore.StepRequest){
		"of another part":     func(req *lockcore.StepRequest) { req.Part = "other" },
		"of the next attempt": func(req *lockcore.StepRequest) { req.Order.Attempt++ },
		"of a kept hold": func(req *lockcore.StepRequest) {
			req.Order.Attempt++
			req.Keep, req.HoldTTL = true, 40*time.Second
		},
	}, func(t *testing.T, l *lockcore.Steps, _ *faultStore, next func(*lockcore.StepRequest)) {
		req := numbered("a", lockcore.Exclusive("r"))
		req.Call = "the same"
		following := req
		next(&following)
		req.Keep, req.HoldTTL = following.Keep, following.HoldTTL
		leases := enter(t, l, req)
		elapse(25 * time.Second)
		enter(t, l, following)
		if !req.Keep {
			leave(t, l, leases...)
		}
		_, err := l.Renew(t.Context(), leases...)
		require.ErrorIs(t, err, lockcore.ErrLost)
	})
}

// The process has two readers. The part of one of them ended, and the document still has the other's.
func TestRenew_OneOfTwoPartsGone_IsLost(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	leases := append(enter(t, l, request("a", lockcore.Shared("r"))), enter(t, l, request("b", lockcore.Shared("r")))...)
	revoke(t, l, "a", "test", "r") // its part drains
	kept, err := l.Renew(t.Context(), leases...)
	require.Equal(t, "a", errorAs[*lockcore.LostError](t, err).LockID)
	require.Len(t, kept, 1)
	require.Equal(t, "b", kept[0].LockID)
}

func TestRenewing_LeasesInAnyOrder_AreSortedByName(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	leases := threeLeases(t, l)
	s := l.NewSession(t.Context(), []lockcore.Lease{leases[2], leases[0], leases[1]})
	require.Equal(t, leases, s.Leases())
	require.NoError(t, s.Leave(t.Context()))
}

// Renewals of many documents share a statement. It must not take the part of another request for the
// one that is renewed, because that request has one of the same call in another document.
func TestRenew_PartLeft_IsLostThoughOthersAreRenewed(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	gone := enter(t, l.Steps, request("a", lockcore.Shared("r")))
	both := enter(t, l.Steps, request("b", lockcore.Shared("r"), lockcore.Shared("s")))
	require.NoError(t, l.Leave(t.Context(), gone...))
	_, err := l.Renew(t.Context(), gone[0], both[1])
	require.ErrorIs(t, err, lockcore.ErrLost)
}

// holders returns leases of n lock IDs on one resource.
func holders(t *testing.T, l *lockcore.Steps, n int) (leases []lockcore.Lease) {
	t.Helper()
	for i := range n {
		leases = append(leases, enter(t, l, request(fmt.Sprint("holder/", i), lockcore.Shared("r")))...)
	}
	return leases
}

// A statement with hundreds of array filters takes the server longer than a lease lasts.
func TestRenew_ManyOfOneDocument_ShareASwap(t *testing.T) {
	eachCase(t, map[string]struct{ leases, extends, swaps int }{
		"twenty":     {20, 1, 0},
		"twenty-one": {21, 0, 1},
		"hundreds":   {600, 0, 1},
	}, func(t *testing.T, l *lockcore.Steps, e *faultStore, c struct{ leases, extends, swaps int }) {
		leases := holders(t, l, c.leases)
		extends, swaps := e.count(of(kindExtend)), e.swaps()
		elapse(20 * time.Second)
		kept, err := l.Renew(t.Context(), leases...)
		require.NoError(t, err)
		require.Len(t, kept, c.leases)
		require.Equal(t, c.extends, e.count(of(kindExtend))-extends)
		require.Equal(t, c.swaps, e.swaps()-swaps)
		elapse(20 * time.Second)
		for i, lease := range kept {
			require.Equal(t, leases[i].LockID, lease.LockID)
			require.True(t, lease.Valid())
		}
	})
}

func TestRenew_SomeOfManyGone_AreLostWithTheirReason(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		leases := holders(t, l, 30)
		revoke(t, l, "holder/7", "an operator said so", "r")
		leave(t, l, leases[9])
		swaps := e.swaps()
		kept, err := l.Renew(t.Context(), leases...)
		require.Len(t, kept, 28)
		require.Len(t, each(t, err), 2)
		lost := errorAs[*lockcore.LostError](t, each(t, err)[0])
		require.Equal(t, "holder/7", lost.LockID)
		require.Equal(t, "an operator said so", lost.Reason)
		require.Equal(t, "holder/9", errorAs[*lockcore.LostError](t, each(t, err)[1]).LockID)
		require.Equal(t, 1, e.swaps()-swaps)
	})
}

func TestRenew_SwapOfManyFails_IsUnknownForEachLease(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		leases := holders(t, l, 30)
		e.set(cutting(of(kindSwap)), nil)
		kept, err := l.Renew(t.Context(), leases...)
		require.Equal(t, leases, kept, "they are unchanged")
		require.Len(t, each(t, err), 30)
		for i, one := range each(t, err) {
			require.Equal(t, leases[i].Order, errorAs[*lockcore.UnknownOutcomeError](t, one).Order)
		}
		e.set(nil, nil)
	})
}

// One lost lease, or one document that cannot be written, must not turn a batch into single swaps.
func TestRenew_OneOf500Fails_OthersAreNotRepeated(t *testing.T) {
	eachCase(t, map[string]func(t *testing.T, l *lockcore.Steps, leases []lockcore.Lease, e *faultStore){
		"lost": func(t *testing.T, l *lockcore.Steps, leases []lockcore.Lease, _ *faultStore) {
			leave(t, l, leases[250])
		},
		"reserved": func(t *testing.T, _ *lockcore.Steps, leases []lockcore.Lease, e *faultStore) {
			require.NoError(t, e.Store.Reserve(t.Context(), leases[250].Resource, rules.Reservation{By: "other", Until: time.Now().Add(time.Second)}))
		},
	}, func(t *testing.T, l *lockcore.Steps, e *faultStore, happens func(*testing.T, *lockcore.Steps, []lockcore.Lease, *faultStore)) {
		var leases []lockcore.Lease
		for i := range 500 {
			leases = append(leases, enter(t, l, request("a", lockcore.Shared(fmt.Sprintf("r/%03d", i))))...)
		}
		happens(t, l, leases, e)
		extends, swaps := e.count(of(kindExtend)), e.swaps()
		kept, _ := l.Renew(t.Context(), leases...)
		require.GreaterOrEqual(t, len(kept), 499)
		require.LessOrEqual(t, e.swaps()-swaps, 1)
		sent := e.commands(of(kindExtend))[extends:]
		require.Len(t, sent[0].parts, 500)
		require.LessOrEqual(t, len(sent), 10)
		for _, c := range sent[1:] {
			require.Len(t, c.parts, 1, "only what was not renewed is repeated")
		}
	})
}

func TestRenew_DocumentReserved_WaitsUntilHalfOfTheTTL(t *testing.T) {
	eachCase(t, map[string]struct{ age, wait time.Duration }{
		"young":                         {0, 2 * time.Second},
		"half is over in half a second": {14500 * time.Millisecond, 500 * time.Millisecond},
		"half is over":                  {16 * time.Second, 0},
	}, func(t *testing.T, l *lockcore.Steps, e *faultStore, c struct{ age, wait time.Duration }) {
		leases := enter(t, l, request("a", lockcore.Shared("r")))
		elapse(c.age)
		swaps := e.swaps()
		require.NoError(t, e.Store.Reserve(t.Context(), "r", rules.Reservation{By: "other", Until: time.Now().Add(2 * time.Second)}))
		began := time.Now()
		_, err := l.Renew(t.Context(), leases...)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), c.wait)
		require.Less(t, time.Since(began), c.wait+500*time.Millisecond)
		require.Equal(t, swaps, e.swaps(), "it is repeated as a statement, not turned into a swap")
	})
}

// While the database fails, thousands of renewals fail. They must not be repeated one by one afterwards.
func TestKeeper_ManyOnOneResource_SurviveAnOutage(t *testing.T) {
	virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
		var all []*lockcore.Session
		for i := range 200 {
			all = append(all, tryAcquire(t, l, request(fmt.Sprint("holder/", i), lockcore.Shared("r"))))
		}
		e.set(cutting(renews), nil)
		elapse(14 * time.Second) // it begins to renew after ten
		e.set(nil, nil)
		before := e.count(of(kindExtend, kindSwap))
		elapse(time.Minute)
		for _, s := range all {
			require.NoError(t, s.Lost())
		}
		require.LessOrEqual(t, e.count(of(kindExtend, kindSwap))-before, 20)
	})
}
