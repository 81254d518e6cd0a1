package party_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func threeLeases(t *testing.T, l *party.Locker) []party.Lease {
	t.Helper()
	leases := enter(t, l, request("a", party.Exclusive("r/1"), party.Exclusive("r/2"), party.Exclusive("r/3")))
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
	for name, refusal := range map[string]error{
		"no server":    errNotSent,
		"other layout": fmt.Errorf("%w: %w", errNotSent, &rules.LayoutError{Collection: "c", Found: "other"}),
	} {
		l, e := inMemory(t, party.Config{})
		leases := threeLeases(t, l)
		e.set(failing(refusal, of(kindExtend, kindSwap)), nil)
		kept, err := l.Renew(t.Context(), leases...)
		require.NotErrorIs(t, err, party.ErrUnknownOutcome, name)
		require.Equal(t, leases, kept, "they stand as they were")
		errs := each(t, err)
		require.Len(t, errs, 3)
		for i, one := range errs {
			require.ErrorContains(t, one, refusal.Error())
			if !errors.As(refusal, new(*rules.LayoutError)) { // which names the collection
				require.ErrorContains(t, one, `"`+leases[i].Resource+`"`)
			}
		}
	}
}

// What a server says of a failure proves nothing: a router may have applied the command.
func TestRenewal_WithoutAnAnswer_IsUnknownForEachLease(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"cut": errCut, "error of the server": mongo.CommandError{Code: 13, Message: "not authorized"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, e := inMemory(t, party.Config{})
			leases := threeLeases(t, l)
			e.set(failing(failure, of(kindExtend, kindSwap)), nil)
			_, err := l.Renew(t.Context(), leases...)
			for i, one := range each(t, err) {
				unknown := errorAs[*party.UnknownOutcomeError](t, one)
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
	l, e := inMemory(t, party.Config{})
	leases := threeLeases(t, l)
	e.set(both(cutting(of(kindExtend)), cutting(of(kindSwap), onResource("r/2"))), nil)
	_, err := l.Renew(t.Context(), leases...)
	require.Len(t, each(t, err), 1)
	unknown := errorAs[*party.UnknownOutcomeError](t, err)
	require.Equal(t, "r/2", unknown.Resource)
	for _, name := range []string{"r/1", "r/3"} {
		require.NotNil(t, e.Document(name).Entries[0].RenewedAt)
	}
}

// A batch that finds fewer documents than it names proves nothing of any one of them.
func TestRenewal_BatchThatMissesOne_AsksForEach(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	leases := threeLeases(t, l)
	require.NoError(t, l.Release(t.Context(), party.Release{LockID: "a", Resources: []string{"r/3"}, FirstFence: leases[2].FirstFence, Order: leases[2].Order, Leaving: &leases[2].Part}))
	kept, err := l.Renew(t.Context(), leases...)
	require.Len(t, kept, 2)
	require.Equal(t, "r/2", kept[1].Resource)
	lost := errorAs[*party.LostError](t, err)
	require.Equal(t, "r/3", lost.Resource)
	require.Len(t, each(t, err), 1)
}

// The part of a lease has ended, and the document has another entry of its lock ID. A caller may give the same Call
// to requests of several parts and orders, and a renewal also extends the kept hold when half of its time is over.
func TestRenew_PartEnded_IsLostDespiteAnotherEntry(t *testing.T) {
	eachCase(t, map[string]func(*party.Request){
		"of another part":     func(req *party.Request) { req.Part = "other" },
		"of the next attempt": func(req *party.Request) { req.Order.Attempt++ },
		"of a kept hold": func(req *party.Request) {
			req.Order.Attempt++
			req.Persist, req.HoldTTL = true, 40*time.Second
		},
	}, func(t *testing.T, l *party.Locker, _ *faultStore, next func(*party.Request)) {
		req := numbered("a", party.Exclusive("r"))
		req.Call = "the same"
		following := req
		next(&following)
		req.Persist, req.HoldTTL = following.Persist, following.HoldTTL
		leases := enter(t, l, req)
		elapse(25 * time.Second)
		enter(t, l, following)
		if !req.Persist {
			leave(t, l, leases...)
		}
		_, err := l.Renew(t.Context(), leases...)
		require.ErrorIs(t, err, party.ErrLost)
	})
}

// The process has two readers. The part of one of them ended, and the document still has the other's.
func TestRenew_OneOfTwoPartsGone_IsLost(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	leases := append(enter(t, l, request("a", party.Shared("r"))), enter(t, l, request("b", party.Shared("r")))...)
	revoke(t, l, "a", "test", "r") // its part drains
	kept, err := l.Renew(t.Context(), leases...)
	require.Equal(t, "a", errorAs[*party.LostError](t, err).LockID)
	require.Len(t, kept, 1)
	require.Equal(t, "b", kept[0].LockID)
}

func TestRenewing_LeasesInAnyOrder_AreSortedByName(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, party.Config{})
	leases := threeLeases(t, l)
	s := l.NewSession(t.Context(), []party.Lease{leases[2], leases[0], leases[1]})
	require.Equal(t, leases, s.Leases())
	require.NoError(t, s.Leave(t.Context()))
}

// Renewals of many documents share a statement. It must not take the part of another request for the
// one that is renewed, because that request has one of the same call in another document.
func TestRenew_PartLeft_IsLostThoughOthersAreRenewed(t *testing.T) {
	t.Parallel()
	l := setup(t, party.Config{})
	gone := enter(t, l.Locker, request("a", party.Shared("r")))
	both := enter(t, l.Locker, request("b", party.Shared("r"), party.Shared("s")))
	require.NoError(t, l.Leave(t.Context(), gone...))
	_, err := l.Renew(t.Context(), gone[0], both[1])
	require.ErrorIs(t, err, party.ErrLost)
}
