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

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fakeLocker grants every request, unless enter returns an error, and records the requests.
type fakeLocker struct {
	renewErr error
	// ends counts leaves and releases.
	ends     atomic.Int32
	mu       sync.Mutex
	requests []lockcore.StepRequest
	queued   []bool
	sessions []*fakeSession
	released []lockcore.Release
	// enter, if set, returns the error of the n-th request, counted from 0.
	enter func(ctx context.Context, n int, req lockcore.StepRequest) error
	// leaveErr is the error of Leave.
	leaveErr error
	// held contains the statuses that Status lists.
	held []lockcore.Status
}

func (f *fakeLocker) Enter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return f.request(ctx, req, true)
}

func (f *fakeLocker) TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return f.request(ctx, req, false)
}

func (f *fakeLocker) request(ctx context.Context, req lockcore.StepRequest, queue bool) ([]lockcore.Lease, error) {
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

func (f *fakeLocker) KnownCollectionID() string { return "own" }

func (f *fakeLocker) Replaces(_ context.Context, id string) (bool, string, error) {
	return id == "replaced", "own", nil
}

func (f *fakeLocker) Replaced(context.Context, string, string, ...string) ([]string, error) {
	return nil, nil
}

func (f *fakeLocker) NewStepSession(ctx context.Context, leases []lockcore.Lease, _ time.Duration) session {
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

func (f *fakeLocker) LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error) {
	return true, f.Leave(ctx, lease)
}

func (f *fakeLocker) Leave(context.Context, ...lockcore.Lease) error {
	f.ends.Add(1)
	return nil
}

func (f *fakeLocker) ReleaseCommitted(ctx context.Context, of lockcore.Release) ([]lockcore.LostError, error) {
	return nil, f.Release(ctx, of)
}

func (f *fakeLocker) Release(_ context.Context, r lockcore.Release) error {
	if r.Leaving != nil { // of a step
		f.ends.Add(1)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, r)
	return nil
}

func (f *fakeLocker) Verify(context.Context, lockcore.Verify) error {
	return errors.New("not of the interceptor")
}

func (f *fakeLocker) Raise(context.Context, lockcore.Raise) error {
	return errors.New("not of the interceptor")
}

func (f *fakeLocker) Status(context.Context, lockcore.Filter) iter.Seq2[lockcore.Status, error] {
	return func(yield func(lockcore.Status, error) bool) {
		for _, s := range f.held {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (f *fakeLocker) asked() []lockcore.StepRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]lockcore.StepRequest(nil), f.requests...)
}

func (f *fakeLocker) kept() []*fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*fakeSession(nil), f.sessions...)
}

// loseAll ends all sessions with a loss.
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

// workflowEnv returns the SDK's test environment with these interceptors.
func workflowEnv(t *testing.T, list ...interceptor.WorkerInterceptor) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	suite := quietSuite()
	env := suite.NewTestWorkflowEnvironment()
	// The default limits, of one and three seconds, are too short for a busy machine.
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

// spy is an interceptor of a third party.
type spy struct {
	interceptor.WorkerInterceptorBase
	// scheduled sees each activity that is scheduled, entered each that is run, and coroutine each
	// that is started, by its name. Any of them may be nil.
	scheduled func(ctx workflow.Context, activityType string)
	entered   func(ctx context.Context)
	coroutine func(name string)
}

func (s *spy) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &spyInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, s}
}

func (s *spy) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &spyActivity{interceptor.ActivityInboundInterceptorBase{Next: next}, s}
}

type spyInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	spy *spy
}

func (s *spyInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return s.Next.Init(&spyOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, s.spy})
}

type spyOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	spy *spy
}

func (s *spyOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if s.spy.scheduled != nil {
		s.spy.scheduled(ctx, activityType)
	}
	return s.Next.ExecuteActivity(ctx, activityType, args...)
}

func (s *spyOutbound) Go(ctx workflow.Context, name string, f func(ctx workflow.Context)) workflow.Context {
	if s.spy.coroutine != nil {
		s.spy.coroutine(name)
	}
	return s.Next.Go(ctx, name, f)
}

type spyActivity struct {
	interceptor.ActivityInboundInterceptorBase
	spy *spy
}

func (s *spyActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if s.spy.entered != nil {
		s.spy.entered(ctx)
	}
	return s.Next.ExecuteActivity(ctx, in)
}
