package interceptors

import (
	"context"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// spy is another party's interceptor, beside ours.
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
