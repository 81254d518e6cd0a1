package runstate

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

const (
	// attemptTimeout bounds one attempt of an own activity: the database answers within it, or fails.
	attemptTimeout = 10 * time.Second
	// operatorPause is the time after which an own activity that an operator has failed is scheduled again.
	operatorPause = time.Second
	// highestPriority is the key of the highest priority of a task.
	highestPriority = 1
	// defaultPriority is the key of a task without a priority.
	defaultPriority = 3
	// maxPayload bounds the names in the input of one activity, maxOwn those in the own activities of one workflow task, and maxGuards those in
	// the guards of one workflow task. The server refuses a payload of 2 MB, and a workflow task that schedules 4 MB. Names are counted in
	// bytes and before encoding, because replay must compute the same sizes.
	maxPayload = 100_000
	maxOwn     = 1_000_000
	maxGuards  = 2_000_000
)

// own is one of Lockstep's own activities.
type own struct {
	// name is the activity's type. purpose begins its summary, which ends with resources, the names of the resources in its input.
	name, purpose string
	resources     []string
	// params is the input. In it, each resource takes overhead bytes in addition to its name.
	params   any
	overhead int
	// id and queue default to an ID of the SDK's, and the queue of Lockstep's own activities. priority defaults to the highest, because others
	// may wait for locks that the activity releases.
	id, queue string
	priority  temporal.Priority
	// attempt bounds one attempt; 0 means attemptTimeout. total, unless it is 0, bounds all attempts.
	attempt, total time.Duration
	// once is set if the activity is not scheduled again after an operator has failed it.
	once bool
}

// size returns the number of bytes that names take in the input.
func (o *own) size() (size int) {
	for _, name := range o.resources {
		size += len(name) + o.overhead
	}
	return size
}

// schedule schedules an own activity under ctx, and returns its future and a function that cancels it. No other function schedules one. The
// activity has the values of ctx, such as those of context propagators, but not its cancellation.
func (s *State) schedule(ctx workflow.Context, o own) (workflow.Future, workflow.CancelFunc) {
	input, err := converter.GetDefaultDataConverter().ToPayload(o.params)
	if err != nil {
		panic(fmt.Sprintf("lockstep: encode the input of %s: %v", o.name, err)) // structs of texts, numbers and times are always encoded
	}
	if o.priority == (temporal.Priority{}) {
		o.priority.PriorityKey = highestPriority
	}
	reader := s.base
	if own := workflow.GetInfo(ctx).TaskQueueName; o.queue != "" && o.queue != own { // its worker reads it as it reads the step's arguments
		reader = ctx
	}
	ctx, cancel := workflow.NewDisconnectedContext(ownContext{ctx, reader})
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ActivityID: o.id, TaskQueue: cmp.Or(o.queue, s.taskQueue, workflow.GetInfo(ctx).TaskQueueName), Priority: o.priority,
		Summary:             wire.Cut(o.purpose+strings.Join(o.resources, ", "), 120),
		StartToCloseTimeout: cmp.Or(o.attempt, attemptTimeout), ScheduleToCloseTimeout: o.total,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 30 * time.Second},
	}), o.name, converter.NewRawValue(input))
	if future.IsReady() { // nothing was recorded
		panic(fmt.Sprintf("lockstep: %s was not scheduled: %v", o.name, future.Get(ctx, nil)))
	}
	return future, cancel
}

// ownContext is the context of an own activity. It hides the session of the context that it wraps: the session's worker may have no Lockstep, and
// in a session that has failed the SDK schedules nothing. It has the data converter of another context, normally that of the run.
type ownContext struct {
	workflow.Context
	reader workflow.Context
}

// optionsKey is the SDK's key of the options of a run, with its data converter. The SDK has no function that returns that.
const optionsKey = "wfEnvOptions"

// Value hides a session, and returns the reader's options.
func (c ownContext) Value(key any) any {
	if key == optionsKey {
		return c.reader.Value(key)
	}
	value := c.Context.Value(key)
	if _, session := value.(*workflow.SessionInfo); session {
		return nil
	}
	return value
}

// await runs an own activity until it succeeds, fails with a verdict, ctx is cancelled or mustStop returns true. It first waits for a workflow
// task that has room for it. values is the context whose values the activity has.
func (s *State) await(ctx, values workflow.Context, o own, result any, mustStop func() bool) error {
	for {
		if err := workflow.Await(ctx, func() bool { return mustStop() || s.admits(ctx, o.size()) }); err != nil || mustStop() {
			return err
		}
		future, cancel := s.schedule(values, o)
		if err := workflow.Await(ctx, func() bool { return future.IsReady() || mustStop() }); err != nil || mustStop() {
			cancel()
		}
		err := future.Get(ctx, result)
		checkRead(o.name, err)
		if err == nil || ctx.Err() != nil || mustStop() || o.once || o.total > 0 && isOutOfTime(err) || isFinal(o.name, err) {
			return err
		}
		workflow.GetLogger(ctx).Warn("lockstep: an activity failed although it has no last attempt, and is scheduled again", "activity", o.name, "error", err)
		if _, err := workflow.AwaitWithTimeout(ctx, operatorPause, mustStop); err != nil {
			return err
		}
	}
}

// checkRead panics, and so fails the workflow task, if err is that of a result that cannot be read: another attempt to read it may succeed.
func checkRead(name string, err error) {
	if _, failed := errors.AsType[*temporal.ActivityError](err); err != nil && !failed && !temporal.IsCanceledError(err) {
		panic(fmt.Sprintf("lockstep: the result of %s cannot be read: %v", name, err))
	}
}

// isOutOfTime reports whether an activity has timed out, or failed because its next attempt would have.
func isOutOfTime(err error) bool {
	failed, ok := errors.AsType[*temporal.ActivityError](err)
	return isTimeout(err) || ok && failed.RetryState() == enumspb.RETRY_STATE_TIMEOUT
}

// isFinal reports whether an own activity ended with a verdict about the locks. Any other failure is an operator's.
func isFinal(name string, err error) bool {
	if wire.LockError(err) != nil {
		return true
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); !ok || !app.NonRetryable() { // a server repeats it
		panic(fmt.Sprintf("lockstep: %s failed ten times, after which the SDK's test environment gives up: %v", name, err))
	}
	return false
}

func never() bool { return false }

// task counts what one workflow task schedules, in bytes of names.
type task struct {
	// length and now identify the task: the length of the history, and the workflow's time.
	length int
	now    time.Time
	// own counts own activities, and guards guards.
	own, guards int
}

// currentTask returns the counts of the current workflow task.
func (s *State) currentTask(ctx workflow.Context) *task {
	length, now := workflow.GetInfo(ctx).GetCurrentHistoryLength(), workflow.Now(ctx)
	if s.task.length != length || !s.task.now.Equal(now) {
		s.task = task{length: length, now: now}
	}
	return &s.task
}

// admits reports whether an own activity of this size fits into the current workflow task, and counts it. One always fits.
func (s *State) admits(ctx workflow.Context, size int) bool {
	t := s.currentTask(ctx)
	if t.own > 0 && t.own+size > maxOwn {
		return false
	}
	t.own += size
	return true
}

// admitsGuard reports whether a guard of these resources fits into the current workflow task, and counts it.
func (s *State) admitsGuard(ctx workflow.Context, resources []wire.Resource) bool {
	t, size := s.currentTask(ctx), sizeOf(resources)
	if t.guards+size > maxGuards {
		return false
	}
	t.guards += size
	return true
}

func sizeOf(resources []wire.Resource) (size int) {
	for _, r := range resources {
		size += len(r.Name)
	}
	return size
}

// awaitAll runs own activities at the same time, as far as workflow tasks admit them, and returns the first of their errors.
func (s *State) awaitAll(ctx, values workflow.Context, all []own) error {
	if len(all) == 1 {
		return s.await(ctx, values, all[0], nil, never)
	}
	errs, left := make([]error, len(all)), len(all)
	for i, o := range all {
		workflow.Go(ctx, func(ctx workflow.Context) {
			errs[i] = s.await(ctx, values, o, nil, never)
			left--
		})
	}
	if err := workflow.Await(ctx, func() bool { return left == 0 }); err != nil {
		return err
	}
	return cmp.Or(errs...)
}

// split returns copies of an own activity for resources, each with as many as fit into one input, which params returns.
func split(all uses, o own, params func(piece uses) any) (activities []own) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && (n == 0 || size+len(all[n].Resource)+o.overhead <= maxPayload) {
			size += len(all[n].Resource) + o.overhead
			n++
		}
		o.resources, o.params = all[:n].names(), params(all[:n])
		activities, all = append(activities, o), all[n:]
	}
	return activities
}

// Encode returns the arguments of an activity as they are now, encoded by the data converter of ctx, without the codec's part, because
// ExecuteActivity will add that. A later change through a pointer does not affect them. It panics, and so fails the workflow task, which is
// repeated, if they cannot be encoded.
func Encode(ctx workflow.Context, what string, args []any) []any {
	encoded, dc := make([]any, len(args)), converterOf(ctx)
	for i, arg := range args {
		var value converter.RawValue
		p, err := dc.ToPayload(arg)
		if err == nil {
			err = dc.FromPayload(p, &value)
		}
		if err == nil && value.Payload() == nil {
			err = errors.New("the data converter does not support converter.RawValue")
		}
		if err != nil {
			panic(fmt.Sprintf("lockstep: the arguments of %s cannot be encoded: %v", what, err))
		}
		encoded[i] = value
	}
	return encoded
}

// converterOf returns the data converter of a context. The SDK has no function that does so.
//
//workflowcheck:ignore it reads one field of a struct that is the same in each replay
func converterOf(ctx workflow.Context) converter.DataConverter {
	dc, ok := reflect.ValueOf(ctx.Value(optionsKey)).Elem().FieldByName("DataConverter").Interface().(converter.DataConverter)
	if !ok {
		return converter.GetDefaultDataConverter()
	}
	if aware, ok := dc.(workflow.ContextAware); ok {
		return aware.WithWorkflowContext(ctx)
	}
	return dc
}
