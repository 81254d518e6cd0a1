package ui

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

const (
	// listPause and checkPause are the times between two reads of the locks, and between two rounds of questions to both
	// servers.
	listPause  = 1500 * time.Millisecond
	checkPause = 5 * time.Second
	// readTimeout bounds a read.
	readTimeout = time.Minute
)

// cached shares the result of the last read among all viewers.
type cached[T any] struct {
	read func(ctx context.Context) (T, error)
	// minPause is the time between two reads. After a slow read, the next comes only after ten times its duration: all
	// viewers together keep the servers busy for a tenth of the time.
	minPause time.Duration

	reading sync.Mutex // is held during a read
	last    atomic.Pointer[result[T]]
}

// result is the result of a read that began at a time, and of which viewers see no other one before next.
type result[T any] struct {
	value    T
	err      error
	at, next time.Time
}

// latest returns the last result without a read, or the zero value.
func (s *cached[T]) latest() (value T) {
	if r := s.last.Load(); r != nil {
		value = r.value
	}
	return value
}

// fresh returns the last result if it is not time for another read, and nil otherwise.
func (s *cached[T]) fresh() *result[T] {
	if r := s.last.Load(); r != nil && time.Now().Before(r.next) {
		return r
	}
	return nil
}

// get returns the last result, which callers must not change, and the time of the read. Failures are shared too:
// otherwise each viewer would ask a database that does not answer.
func (s *cached[T]) get(ctx context.Context) (T, time.Time, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	r := s.fresh()
	if r == nil {
		r = s.renew(ctx)
	}
	return r.value, r.at, r.err
}

// soon is get for a result that the page is shown without. If it takes until a deadline, soon returns the result before,
// and the read continues for the next view. ok is false if there is no result yet.
func (s *cached[T]) soon(ctx context.Context, deadline time.Time) (value T, err error, ok bool) { //nolint:revive // as of a map
	if s.fresh() == nil && s.reading.TryLock() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer s.reading.Unlock()
			if s.fresh() == nil {
				s.renew(ctx)
			}
		}()
		late := time.NewTimer(time.Until(deadline))
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		}
	}
	r := s.last.Load()
	if r == nil {
		return value, nil, false
	}
	return r.value, r.err, true
}

// renew reads. The caller holds the mutex.
func (s *cached[T]) renew(ctx context.Context) *result[T] {
	r := &result[T]{at: time.Now()}
	// Other viewers wait for the result, so the read continues when this viewer disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	r.value, r.err = s.read(ctx)
	pause := 10 * time.Since(r.at)
	if r.err != nil {
		pause = time.Since(r.at) // a read that timed out may succeed at once now
	}
	r.next = time.Now().Add(max(s.minPause, pause))
	s.last.Store(r)
	return r
}

// answers shares Temporal's answers about workflow runs among all viewers for as long as a listing. Errors are shared too.
type answers struct {
	inspect.Frontend

	mu    sync.Mutex
	known map[execution]answer
}

type execution struct{ namespace, workflow, run string }

type answer struct {
	*workflowservice.DescribeWorkflowExecutionResponse
	error
	at time.Time
}

// DescribeWorkflowExecution asks Temporal, unless another viewer has just asked the same.
func (a *answers) DescribeWorkflowExecution(
	ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	of := execution{in.GetNamespace(), in.GetExecution().GetWorkflowId(), in.GetExecution().GetRunId()}
	a.mu.Lock()
	maps.DeleteFunc(a.known, func(_ execution, old answer) bool { return time.Since(old.at) >= listPause })
	got, found := a.known[of]
	a.mu.Unlock()
	if found {
		return got.DescribeWorkflowExecutionResponse, got.error
	}
	got = answer{at: time.Now()}
	got.DescribeWorkflowExecutionResponse, got.error = a.Frontend.DescribeWorkflowExecution(ctx, in, opts...)
	if ctx.Err() == nil { // otherwise it was this viewer's own end
		a.mu.Lock()
		a.known[of] = got
		a.mu.Unlock()
	}
	return got.DescribeWorkflowExecutionResponse, got.error
}
