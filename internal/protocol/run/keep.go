package run

import (
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

const (
	// keepHeartbeat is after what time without a heartbeat the keep-alive is started elsewhere, and keepHeartbeatLeast
	// the least of it where the HoldTTL is short.
	keepHeartbeat      = 30 * time.Second
	keepHeartbeatLeast = time.Second
	// keepAttempt bounds one attempt; the next one goes on.
	keepAttempt = 24 * time.Hour
)

// keepAlive is the activity that keeps a lock's holds alive, where it was started.
type keepAlive struct {
	lost workflow.Future
	tell workflow.Settable
	stop workflow.CancelFunc
}

func newKeepAlive(ctx workflow.Context) keepAlive {
	lost, tell := workflow.NewFuture(ctx)
	return keepAlive{lost: lost, tell: tell}
}

// KeepAlive starts the activity that extends the locks. It runs until [Lock.Release], whatever becomes of ctx.
func (l *Lock) KeepAlive(ctx workflow.Context) {
	var ours workflow.Context
	ours, l.keepAlive.stop = l.step.scope.state.apart(ctx)
	resources := resourceNames(l.asked)
	kept := workflow.ExecuteActivity(workflow.WithActivityOptions(ours, workflow.ActivityOptions{
		TaskQueue:           workflow.GetInfo(ctx).TaskQueueName,
		StartToCloseTimeout: keepAttempt,
		HeartbeatTimeout:    l.heartbeat(),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
		Summary:             protocol.Cut("keep "+strings.Join(resources, ", "), 120),
	}), protocol.ActivityKeep, protocol.KeepParams{Resources: resources})
	workflow.GoNamed(ctx, "lockstep-keep", func(ctx workflow.Context) {
		switch err := kept.Get(ctx, nil); {
		case l.step.scope.closed || err == nil:
		case !l.keepAlive.lost.IsReady():
			l.keepAlive.tell.SetError(protocol.TypedError(err))
		}
	})
}

// heartbeat leaves time for another attempt to go on while the hold stands.
func (l *Lock) heartbeat() time.Duration {
	timeout := keepHeartbeat
	if hold := time.Duration(l.step.Guard.HoldTTL); hold > 0 {
		timeout = min(timeout, max(hold/3, keepHeartbeatLeast))
	}
	return timeout
}

// Lost is ready with an error when the keep-alive found that a lock is lost, and without one when the lock was released.
func (l *Lock) Lost() workflow.Future { return l.keepAlive.lost }

func (k *keepAlive) end() {
	if k.stop != nil {
		k.stop()
	}
	if !k.lost.IsReady() {
		k.tell.SetValue(nil)
	}
}
