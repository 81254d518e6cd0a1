package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Commands as they are sent. The first write of a resource is an update that inserts, after a guard.
const (
	reads  = "find"
	writes = "update"
)

// wire are the commands of a client.
type wire struct {
	*storetest.Checker
	taken int
}

// take returns the commands since the last time.
func (w *wire) take() []storetest.Command {
	sent := w.Commands()[w.taken:]
	w.taken += len(sent)
	return sent
}

// sends fails the test unless f sends these commands.
func (w *wire) sends(t *testing.T, what string, f func(), commands ...string) {
	t.Helper()
	w.take()
	f()
	var names []string
	for _, c := range w.take() {
		names = append(names, c.Name)
	}
	require.Equal(t, commands, names, what)
}

// careless returns a collection of a client that asks for no guarantees, and the client's commands.
func careless(t *testing.T) (*mongo.Collection, *wire) {
	t.Helper()
	monitor, checker := storetest.Monitor()
	unjournaled := false
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetMonitor(monitor).
		SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &unjournaled}).
		SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Nearest()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, checker.Err())
		require.NoError(t, c.Disconnect(context.Background()))
	})
	return c.Database(testenv.Mongo(t).Name()).Collection("locks"), &wire{Checker: checker}
}

// fresh returns a Locker that knows no resource, but knows its collection and the server's time.
func fresh(t *testing.T, coll *mongo.Collection) *lockcore.Steps {
	t.Helper()
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(l.Steps()) })
	require.NoError(t, firstStatus(t.Context(), l.Steps(), lockcore.Filter{LockID: "nobody"}))
	require.NoError(t, l.Steps().ReadMajority(t.Context(), "a read that tells the time"))
	return l.Steps()
}

func TestCommands_OfEachOperation(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	l := fresh(t, coll)
	three := []lockcore.Resource{lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"), lockcore.Exclusive("r/3")}
	var leases []lockcore.Lease
	enter := func(l *lockcore.Steps, want error, req lockcore.StepRequest, queue bool) func() {
		return func() {
			got, err := enterOrTry(t.Context(), l, req, queue)
			require.ErrorIs(t, err, want)
			leases = got
		}
	}
	leave := func(l *lockcore.Steps) func() {
		return func() { require.NoError(t, l.Leave(t.Context(), leases...)) }
	}
	renew := func(l *lockcore.Steps) func() {
		return func() {
			_, err := l.Renew(t.Context(), leases...)
			require.NoError(t, err)
		}
	}
	a, b := request("a", three[0]), request("b", three[0])
	a.Part, a.Order, a.Call = "p", lockcore.Order{Schedule: 1}, "call"
	b.Part, b.Order = "p", lockcore.Order{Schedule: 1}

	w.sends(t, "acquire a resource without a document", enter(l, nil, a, false), reads, writes)
	w.sends(t, "renew", renew(l), writes)
	w.sends(t, "leave", leave(l), writes)
	a.Order.Schedule++
	w.sends(t, "acquire a known resource", enter(l, nil, a, false), writes)
	w.sends(t, "repeat the call", enter(l, nil, a, false), writes)
	w.sends(t, "find it busy", enter(l, lockcore.ErrBusy, request("b", three[0]), false), reads)
	w.sends(t, "queue", enter(l, lockcore.ErrBusy, b, true), writes)
	a.Call = "another call"
	w.sends(t, "be superseded", enter(l, lockcore.ErrSuperseded, a, false), writes)
	held := request("c", three[0])
	held.HeldSince = map[string]uint32{held.Resources[0].Name: 9}
	w.sends(t, "find it lost", enter(l, lockcore.ErrLost, held, false), writes)
	w.sends(t, "release", func() {
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "b", Resources: []string{"r/1"}, Order: lockcore.LastAttempt(1)}))
	}, writes)
	w.sends(t, "release what is not held", func() {
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "b", Resources: []string{"r/1"}, Order: lockcore.LastAttempt(1)}))
	}, writes)
	w.sends(t, "release by force", func() {
		for _, s := range statuses(t, l, lockcore.Filter{LockID: "a"}) {
			require.NoError(t, l.Revoke(t.Context(), "r/1", "a", s.FirstFence, "test", true))
		}
	}, reads, writes)

	w.sends(t, "acquire three", enter(l, nil, request("c", three...), false), reads, writes)
	w.sends(t, "renew three", renew(l), writes)
	w.sends(t, "leave three", leave(l), writes)
	w.sends(t, "acquire three known resources", enter(l, nil, request("c", three...), false), writes)
	w.sends(t, "leave three", leave(l), writes)

	other := fresh(t, coll)
	w.sends(t, "acquire a resource that another process knows", enter(other, nil, request("d", three[0]), false), reads, writes)
	w.sends(t, "leave", leave(other), writes)
	w.sends(t, "acquire after another process did", enter(l, nil, request("d", three[0]), false), writes, reads, writes)
}

// Within a process a hand-over is one write, however many wait: the swap that frees the resource grants
// it to the next.
func TestCommands_HandOverWithinAProcess_IsOneWrite(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	l := fresh(t, coll)
	s := tryAcquire(t, l, request("holder", lockcore.Exclusive("r")))
	const waiting = 5
	var waits []<-chan acquired
	for i := range waiting {
		waits = append(waits, acquireLater(t.Context(), l, request(fmt.Sprint(i), lockcore.Exclusive("r"))))
		require.Eventually(t, func() bool { return fixture{l, coll}.waiting(t, "r") == i+1 }, 10*time.Second, 5*time.Millisecond)
	}
	before := w.Count(writes)
	for _, next := range waits {
		require.NoError(t, s.Leave(t.Context()))
		got := <-next
		require.NoError(t, got.err)
		s = got.session
	}
	require.Equal(t, waiting, w.Count(writes)-before)
	require.NoError(t, s.Leave(t.Context()))
}

func TestCommands_TenThousandRenewals_AreTwenty(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	leases := manyLeases(t, l, 10_000)
	// The Locker reads the identity every few seconds.
	all := func() int { return e.count() - e.count(of(kindIdentify)) }
	sent := all()
	kept, err := l.Renew(t.Context(), leases...)
	require.NoError(t, err)
	require.Len(t, kept, len(leases))
	require.Equal(t, 20, e.count(of(kindExtend)))
	require.Equal(t, sent+20, all())
}

// manyLeases takes n resources, in an order that is not that of their names.
func manyLeases(t *testing.T, l *lockcore.Steps, n int) (leases []lockcore.Lease) {
	t.Helper()
	for i := 0; i < n; i += 100 {
		req := request("a")
		for j := range 100 {
			req.Resources = append(req.Resources, lockcore.Exclusive(fmt.Sprint("r/", i+j)))
		}
		req.TTL = time.Hour
		got := enter(t, l, req)
		leases = append(leases, got...)
	}
	slices.Reverse(leases)
	return leases
}

// A result that was returned to a caller is stored on a majority, whatever the caller's client is set to.
func TestCommands_ConcernsAreThoseOfTheStore(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	l := fresh(t, coll)
	w.take()
	s := tryAcquire(t, l, request("a", lockcore.Exclusive("r"), lockcore.Exclusive("s")))
	_, err := l.Renew(t.Context(), s.Leases()...)
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, l.ReadMajority(t.Context(), "r"))
	require.NoError(t, firstStatus(t.Context(), l, lockcore.Filter{Resource: "r"}))
	concerns := map[string]int{}
	for _, c := range w.take() {
		if pref, err := c.Body.LookupErr("$readPreference", "mode"); err == nil {
			require.Equal(t, "primary", pref.StringValue(), c.Name)
		}
		switch c.Name {
		case writes, "insert":
			require.Equal(t, "majority", c.Body.Lookup("writeConcern", "w").StringValue(), c.Name)
			require.True(t, c.Body.Lookup("writeConcern", "j").Boolean(), c.Name)
			concerns["writes"]++
		case reads:
			concerns[c.Body.Lookup("readConcern", "level").StringValue()]++
		}
	}
	require.Equal(t, map[string]int{"writes": 3, "local": 1, "majority": 2}, concerns)
}

// Only "busy", "full" and "another run speaks" may be answered after a read alone. A primary that was
// deposed without knowing it could base every other answer on data that no other member has.
func TestCommands_AnswersExceptBusy_FollowAWrite(t *testing.T) {
	t.Parallel()
	a := request("a", lockcore.Exclusive("r"))
	a.Part, a.Order, a.Call, a.Run, a.Keep = "p", lockcore.Order{Schedule: 2, Attempt: 1}, "call", "run", true
	changed := func(change func(*lockcore.StepRequest)) lockcore.StepRequest {
		req := a
		req.Resources = slices.Clone(a.Resources)
		change(&req)
		return req
	}
	for name, c := range map[string]struct {
		req    lockcore.StepRequest
		queue  bool
		answer error
		reads  bool
	}{
		"granted":    {request("free", lockcore.Exclusive("free")), false, nil, false},
		"again":      {a, false, nil, false},
		"joined":     {changed(func(req *lockcore.StepRequest) { req.Part = "other" }), false, nil, false},
		"queued":     {changed(func(req *lockcore.StepRequest) { req.LockID = "b" }), true, lockcore.ErrBusy, false},
		"superseded": {changed(func(req *lockcore.StepRequest) { req.Order.Schedule = 1 }), false, lockcore.ErrSuperseded, false},
		"lost": {changed(func(req *lockcore.StepRequest) {
			req.LockID, req.HeldSince = "b", map[string]uint32{req.Resources[0].Name: 9}
		}), false, lockcore.ErrLost, false},
		"deadlock":  {changed(func(req *lockcore.StepRequest) { req.LockID = "victim" }), true, lockcore.ErrDeadlock, false},
		"busy":      {request("b", lockcore.Exclusive("r")), false, lockcore.ErrBusy, true},
		"other run": {changed(func(req *lockcore.StepRequest) { req.Run = "next" }), false, lockcore.ErrOtherRun, true},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, lockcore.Config{}, func(t *testing.T, l *lockcore.Steps, e *faultStore) {
				enter(t, l, a)
				victim := changed(func(req *lockcore.StepRequest) { req.LockID = "victim" })
				queue(t, l, victim)
				err := change(t.Context(), e.Store, rules.Withdraw{Resource: "r", Caller: rules.Caller{LockID: "victim", Part: "p", Order: 2<<32 | 1}, Reason: "deadlock: test"})
				require.NoError(t, err)

				e.set(failing(errNotSent, of(kindSwap)), nil)
				_, err = enterOrTry(t.Context(), l, c.req, c.queue)
				if c.reads {
					require.ErrorIs(t, err, c.answer)
					return
				}
				require.ErrorIs(t, err, errNotSent)
				for _, answer := range []error{lockcore.ErrBusy, lockcore.ErrLost, lockcore.ErrSuperseded, lockcore.ErrDeadlock} {
					require.NotErrorIs(t, err, answer)
				}
				e.set(nil, nil)
				swaps := e.count(of(kindSwap))
				_, err = enterOrTry(t.Context(), l, c.req, c.queue)
				require.ErrorIs(t, err, c.answer)
				require.Greater(t, e.count(of(kindSwap)), swaps, "and the victim leaves")
			})
		})
	}
}
