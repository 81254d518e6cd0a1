package run

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// followed are the guarded steps of a run that have not ended, in the order in which they were scheduled. The coroutine that
// the SDK runs first settles their futures, before any code of the workflow runs: so a guarded step that finds its locks free
// wakes its workflow in the order in which one without a guard would, and a guard comes to a run in flight, or goes,
// without another order of commands. The SDK itself has nothing that would settle a future by what another came to.
type followed struct {
	open []follow
	// wake tells the first coroutine that there is another one to look at, and that the workflow's code has ended. It is nil
	// until that coroutine runs: the handler of an update may run before.
	wake workflow.Channel
}

type follow struct {
	inner  workflow.Future
	settle func(ctx workflow.Context, err error)
}

// Run runs the workflow's code in a coroutine behind the one that calls, which settles the futures of guarded steps until
// the code has ended.
func (s *State) Run(ctx workflow.Context, code func(ctx workflow.Context)) {
	f := &s.followed
	f.wake = workflow.NewNamedBufferedChannel(ctx, "lockstep-wake", 1)
	ended := false
	workflow.GoNamed(ctx, "workflow", func(ctx workflow.Context) {
		code(ctx)
		ended = true
		f.wake.SendAsync(nil)
	})
	for !ended {
		f.next(ctx)
	}
}

// next settles what has ended since it was called last, that which ended first before the others: it is what a selector takes.
func (f *followed) next(ctx workflow.Context) {
	first := -1
	selector := workflow.NewNamedSelector(ctx, "lockstep-steps")
	for i, step := range f.open {
		selector.AddFuture(step.inner, func(workflow.Future) { first = i })
	}
	selector.AddReceive(f.wake, func(wake workflow.ReceiveChannel, _ bool) { wake.ReceiveAsync(nil) })
	selector.Select(ctx)
	if first >= 0 {
		step := f.open[first]
		f.open = slices.Delete(f.open, first, first+1)
		step.end(ctx)
	}
	all := f.open
	f.open = nil
	for _, step := range all {
		if !step.inner.IsReady() {
			f.open = append(f.open, step)
			continue
		}
		step.end(ctx)
	}
}

// end leaves a step that may have to wait to its own coroutine.
func (f follow) end(ctx workflow.Context) {
	err := f.inner.Get(ctx, nil)
	if _, parked := protocol.Parked(err); !parked {
		f.settle(ctx, err)
	}
}

// Follow calls settle, once, with what a scheduling of the step came to, unless it found its locks busy. settle must not block.
func (t *Step) Follow(ctx workflow.Context, inner workflow.Future, settle func(ctx workflow.Context, err error)) {
	f := &t.scope.state.followed
	step := follow{inner: inner, settle: settle}
	if inner.IsReady() { // it was never scheduled
		step.end(ctx)
		return
	}
	f.open = append(f.open, step)
	if f.wake != nil {
		f.wake.SendAsync(nil)
	}
}
