package interceptors

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fakeLocker gives every lock that it is asked for, unless told otherwise, and remembers what was asked.
type fakeLocker struct {
	renewErr error
	// ends counts what was left or released.
	ends     atomic.Int32
	mu       sync.Mutex
	requests []party.Request
	queued   []bool
	sessions []*fakeSession
	released []party.Release
	// enter, when set, decides about the n-th request, counted from 0.
	enter func(ctx context.Context, n int, req party.Request) error
	// leaveErr is what Leave answers.
	leaveErr error
}

func (f *fakeLocker) Enter(ctx context.Context, req party.Request) ([]lockcore.Lease, error) {
	return f.request(ctx, req, true)
}

func (f *fakeLocker) TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error) {
	return f.request(ctx, req, false)
}

func (f *fakeLocker) request(ctx context.Context, req party.Request, queue bool) ([]lockcore.Lease, error) {
	f.mu.Lock()
	n := len(f.requests)
	f.requests = append(f.requests, req)
	f.queued = append(f.queued, queue)
	f.mu.Unlock()
	if f.enter != nil {
		if err := f.enter(ctx, n, req); err != nil {
			return nil, err
		}
	}
	leases := make([]lockcore.Lease, 0, len(req.Resources))
	for i, r := range req.Resources {
		leases = append(leases, lockcore.Lease{
			Resource: r.Name, LockID: req.LockID, Part: req.Part, Order: req.Order, Mode: r.Mode, Fence: int64(100*(n+1) + i),
		})
	}
	return leases, nil
}

func (f *fakeLocker) CollectionID(context.Context) (string, error) { return "own", nil }

func (f *fakeLocker) Replaced(context.Context, string, string, ...string) ([]string, error) {
	return nil, nil
}

func (f *fakeLocker) NewSession(ctx context.Context, leases []lockcore.Lease) session {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &fakeSession{ctx: ctx, cancel: cancel, leases: leases, leaveErr: f.leaveErr}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sessions = append(f.sessions, s)
	return s
}

func (f *fakeLocker) Renew(_ context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error) {
	return leases, f.renewErr
}

func (f *fakeLocker) LeaveQueue(ctx context.Context, leases ...lockcore.Lease) error {
	return f.Leave(ctx, leases...)
}

func (f *fakeLocker) Leave(context.Context, ...lockcore.Lease) error {
	f.ends.Add(1)
	return nil
}

func (f *fakeLocker) ReleaseHeld(_ context.Context, r party.Release) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, r)
	return nil, nil
}

func (f *fakeLocker) Release(context.Context, party.Release) error {
	f.ends.Add(1)
	return nil
}

func (f *fakeLocker) Status(context.Context, lockcore.Filter) iter.Seq2[lockcore.Status, error] {
	return func(func(lockcore.Status, error) bool) {}
}

func (f *fakeLocker) asked() []party.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]party.Request(nil), f.requests...)
}

func (f *fakeLocker) kept() []*fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*fakeSession(nil), f.sessions...)
}

// loseAll ends the sessions that are held now, as a locker does that has lost their locks.
func (f *fakeLocker) loseAll(by string) {
	for _, s := range f.kept() {
		s.cancel(&lockcore.LostError{Resource: s.leases[0].Resource, LockID: s.leases[0].LockID, Part: s.leases[0].Part, By: by})
	}
}

type fakeSession struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	leases   []lockcore.Lease
	leaveErr error

	mu    sync.Mutex
	left  int
	bound context.Context
}

func (s *fakeSession) Context() context.Context { return s.ctx }
func (s *fakeSession) Lost() error {
	var lost *lockcore.LostError
	if errors.As(context.Cause(s.ctx), &lost) {
		return lost
	}
	return nil
}

func (s *fakeSession) Leases() []lockcore.Lease { return s.leases }

func (s *fakeSession) Leave(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left++
	s.bound = ctx
	s.cancel(context.Canceled)
	return s.leaveErr
}

func (s *fakeSession) LeaveWithin(ctx context.Context, _ time.Duration) error { return s.Leave(ctx) }

func (s *fakeSession) Release(ctx context.Context) error { return s.Leave(ctx) }

func (s *fakeSession) leaves() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

func with(l locker) *Interceptor {
	w := newWaker(nil, nil)
	w.tested = true
	return &Interceptor{options: Options{}, locker: l, closer: newCloser(l, w)}
}

// workflowEnv is the SDK's test environment with these interceptors installed.
func workflowEnv(t *testing.T, list ...interceptor.WorkerInterceptor) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	suite := quietSuite()
	env := suite.NewTestWorkflowEnvironment()
	// Its own limits, of a second and of three, are those of a machine that is not busy.
	env.SetWorkerOptions(sdkworker.Options{Interceptors: list, EnableSessionWorker: true, DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	return env
}

func quietSuite() *testsuite.WorkflowTestSuite {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	return suite
}

func resources(all ...lockcore.Resource) []lockcore.Resource { return all }
