package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// throughHistory returns an activity's error as workflow code gets it from the history.
func throughHistory(err error) error {
	fc := temporal.GetDefaultFailureConverter()
	return fc.FailureToError(activityFailure(fc.ErrorToFailure(err)))
}

func activityFailure(cause *failurepb.Failure) *failurepb.Failure {
	return &failurepb.Failure{
		Message: "activity error",
		FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{
			ActivityType: &commonpb.ActivityType{Name: "Debit"}, ActivityId: "5", RetryState: enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE,
		}},
		Cause: cause,
	}
}

var since = time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC)

func conditions() map[string]error {
	return map[string]error{
		"busy": &lockcore.BusyError{
			Resource: "account/1", LockID: "mine", Position: 3, RetryIn: 4 * time.Second, Blocking: 2,
			Holders: []lockcore.Holder{
				{LockID: "a", Owner: "alice", Host: "h", Mode: lockcore.ModeExclusive, Fence: 7, FirstFence: 6, Since: since, ExpiresIn: time.Minute, Trace: "00-x"},
				{LockID: "b", Mode: lockcore.ModeShared, ExpiresIn: lockcore.Forever},
			},
		},
		"lost": &lockcore.LostError{
			Resource: "account/1", LockID: "mine", Part: "3/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 2}, By: "other", Reason: "forced",
		},
		"superseded": &lockcore.SupersededError{
			Resource: "account/1", LockID: "mine", Part: "3/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 2},
			By: lockcore.LastAttempt(9), Released: true,
		},
		"deadlock": &lockcore.DeadlockError{Resource: "account/1", LockID: "mine", Part: "3/Debit", Order: lockcore.Order{Schedule: 1}, Cycle: "a waits for b"},
		"invalid":  &lockcore.InvalidError{Field: "resource", Value: `""`, Bound: "1 to 512 bytes"},
		"otherRun": &lockcore.OtherRunError{Resource: "r", LockID: "n/w", Run: "r2", Other: "r1"},
	}
}

func TestTypedError_EveryCondition_KeepsItsType(t *testing.T) {
	t.Parallel()
	for name, want := range conditions() {
		for _, sent := range []error{want, fmt.Errorf("enter: %w", want), errors.Join(errors.New("other"), want)} {
			err := throughHistory(Failure(sent))
			require.Equal(t, want, LockError(err), name)

			typed := TypedError(err)
			require.Equal(t, err.Error(), typed.Error())
			require.ErrorIs(t, typed, sentinel(want), name)
			var act *temporal.ActivityError
			require.ErrorAs(t, typed, &act)
			require.Equal(t, "5", act.ActivityID())
			var app *temporal.ApplicationError
			require.ErrorAs(t, typed, &app)
			require.Equal(t, name != "busy" && name != "otherRun", app.NonRetryable())
		}
	}
}

func TestSupersededFailure_ByAnAttempt_IsRetryable(t *testing.T) {
	t.Parallel()
	first := lockcore.Order{Schedule: 4, Attempt: 1}
	for name, tc := range map[string]struct {
		err       lockcore.SupersededError
		retryable bool
	}{
		"later attempt":     {lockcore.SupersededError{Order: first, By: lockcore.Order{Schedule: 4, Attempt: 3}}, true},
		"later scheduling":  {lockcore.SupersededError{Order: first, By: lockcore.Order{Schedule: 5, Attempt: 1}}, false},
		"attempt that left": {lockcore.SupersededError{Order: first, By: lockcore.Order{Schedule: 4, Attempt: 3}, Released: true}, true},
		"release":           {lockcore.SupersededError{Order: first, By: lockcore.LastAttempt(4), Released: true}, false},
		"later attempt of an activity without a workflow": {lockcore.SupersededError{
			LockID: Standalone{"n", "i", "T", "r"}.LockID(), Order: first, By: lockcore.Order{Schedule: 5, Attempt: 1},
		}, true},
	} {
		var app *temporal.ApplicationError
		require.ErrorAs(t, Failure(&tc.err), &app)
		require.Equal(t, tc.retryable, !app.NonRetryable(), name)
	}
}

func TestTypedError_As_FindsTheDetails(t *testing.T) {
	t.Parallel()
	var busy *lockcore.BusyError
	require.ErrorAs(t, TypedError(throughHistory(Failure(conditions()["busy"]))), &busy)
	require.Equal(t, "alice", busy.Holders[0].Owner)
	var lost *lockcore.LostError
	require.ErrorAs(t, TypedError(throughHistory(Failure(conditions()["lost"]))), &lost)
	require.Equal(t, "other", lost.By)
	var superseded *lockcore.SupersededError
	require.ErrorAs(t, TypedError(throughHistory(Failure(conditions()["superseded"]))), &superseded)
	require.True(t, superseded.Released)
	var invalid *lockcore.InvalidError
	require.ErrorAs(t, TypedError(throughHistory(Failure(conditions()["invalid"]))), &invalid)
	require.Equal(t, "resource", invalid.Field)
}

// A workflow that returns a step's error must record what it would have recorded without Lockstep.
func TestTypedError_Recorded_IsTheOriginalFailure(t *testing.T) {
	t.Parallel()
	fc := temporal.GetDefaultFailureConverter()
	plain := throughHistory(Failure(conditions()["lost"]))
	want := fc.ErrorToFailure(plain)
	got := fc.ErrorToFailure(TypedError(plain))
	require.True(t, proto.Equal(want, got), "want %v\ngot  %v", want, got)
}

func TestTypedError_OtherError_IsUnchanged(t *testing.T) {
	t.Parallel()
	require.NoError(t, Failure(nil))
	require.NoError(t, TypedError(nil))
	require.NoError(t, LockError(nil))
	user := throughHistory(temporal.NewApplicationError("no money", "NoMoney"))
	require.Same(t, user, TypedError(user))
	canceled := temporal.NewCanceledError()
	require.Same(t, canceled, TypedError(canceled))

	var app *temporal.ApplicationError
	require.ErrorAs(t, Failure(&lockcore.UnknownOutcomeError{Op: "acquire", Resource: "r", Err: context.DeadlineExceeded}), &app)
	require.Equal(t, FailureUnavailable, app.Type())
	require.False(t, app.NonRetryable())
}

func TestTypedError_WaitTimedOut_IsBusy(t *testing.T) {
	t.Parallel()
	fc := temporal.GetDefaultFailureConverter()
	timeout := &failurepb.Failure{
		Message:     "activity ScheduleToClose timeout",
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE}},
		Cause:       fc.ErrorToFailure(Failure(conditions()["busy"])),
	}
	typed := TypedError(fc.FailureToError(activityFailure(timeout)))
	require.ErrorIs(t, typed, lockcore.ErrBusy)
	require.True(t, temporal.IsTimeoutError(typed))
}

func TestLockError_UnreadableDetails_KeepsTheType(t *testing.T) {
	t.Parallel()
	for failureType, want := range map[string]error{
		FailureBusy: lockcore.ErrBusy, FailureLost: lockcore.ErrLost, FailureSuperseded: lockcore.ErrSuperseded, FailureInvalid: lockcore.ErrInvalid,
	} {
		require.ErrorIs(t, TypedError(throughHistory(temporal.NewApplicationError("x", failureType))), want)
		require.ErrorIs(t, TypedError(throughHistory(temporal.NewApplicationError("x", failureType, "not an object"))), want)
	}
}

func TestBusyFailure_ManyHolders_IsSmallAndDelayed(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: strings.Repeat("r", 512), LockID: strings.Repeat("l", 512), Position: 1}
	for range 500 {
		busy.Holders = append(busy.Holders, lockcore.Holder{LockID: strings.Repeat("h", 512), Owner: strings.Repeat("o", 512), Since: since})
	}
	err := Failure(busy)
	// The server keeps the failure of an attempt that is retried only if it is under 4 KB.
	require.Less(t, proto.Size(temporal.GetDefaultFailureConverter().ErrorToFailure(err)), 4000)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category())
	require.Positive(t, app.NextRetryDelay())
	var d BusyDetails
	require.NoError(t, asDetails(throughHistory(err), &d))
	require.Equal(t, 500, len(d.Holders)+d.MoreHolders)
}

func asDetails(err error, d any) error {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return err
	}
	return app.Details(d)
}

func TestBusyDelay_Position_GrowsFromTheHead(t *testing.T) {
	t.Parallel()
	for position, most := range map[int]time.Duration{
		-5: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 3: 300 * time.Millisecond, 1_000_000: time.Second,
	} {
		for _, busy := range []*lockcore.BusyError{{Position: position}, {Full: true, Waiting: position}} {
			delay := BusyDelay(busy)
			require.GreaterOrEqual(t, delay, most/2, position)
			require.LessOrEqual(t, delay, most, position)
		}
	}
}

func sentinel(err error) error {
	for _, s := range []error{lockcore.ErrBusy, lockcore.ErrLost, lockcore.ErrSuperseded, lockcore.ErrDeadlock, lockcore.ErrInvalid, lockcore.ErrOtherRun} {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

const namespaceID = "5b1e4c3a-0000-4000-8000-00000000000a"

func messageOf(t *testing.T, err error) string {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	return app.Message()
}

// People know workflows by their IDs. Lock IDs that a user has chosen, and resources, are not
// changed.
func TestText_OwnNamespaceID_IsLeftOut(t *testing.T) {
	t.Parallel()
	own, other := namespaceID+"/order-7", namespaceID+"/order-3"
	busy := &lockcore.BusyError{Resource: "account/42", LockID: own, Holders: []lockcore.Holder{{LockID: other, Mode: lockcore.ModeExclusive}}}
	for name, err := range map[string]error{
		"busy": Failure(busy), "parked": ParkFailure(busy, lockcore.StepRequest{Caller: lockcore.Caller{LockID: own}}, ""), "tried": TriedFailure(busy, ""),
		"lost":       Failure(&lockcore.LostError{Resource: "account/42", LockID: own, By: other}),
		"superseded": Failure(&lockcore.SupersededError{Resource: "account/42", LockID: own}),
		"deadlock":   Failure(&lockcore.DeadlockError{Resource: "account/42", LockID: own, Cycle: own + " → " + other}),
		"other run":  Failure(&lockcore.OtherRunError{Resource: "account/42", LockID: own}),
		"waited":     NewWaitError(busy, false),
	} {
		got := messageOf(t, err)
		require.NotContains(t, got, namespaceID, name)
		require.Contains(t, got, "account/42", name)
		require.Contains(t, got, "order-7", name)
	}
	var details BusyDetails
	var app *temporal.ApplicationError
	require.ErrorAs(t, Failure(busy), &app)
	require.NoError(t, app.Details(&details))
	require.Equal(t, own, details.LockID)
	chosen := &lockcore.BusyError{Resource: "account/42", LockID: "account/7"}
	require.Equal(t, chosen.Error(), messageOf(t, Failure(chosen)))
}

// A workflow's details show the message as long as the step waits, and others come and go meanwhile.
// The database has answered: it is the pool that is missing.
func TestFailure_NoPool_SaysHowToMakeIt(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("%w: make it by lockstep pool", lockcore.ErrNoPool)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "me"}, Resources: []lockcore.Resource{lockcore.Pool("phones")}}
	for name, err := range map[string]error{"parked": ParkFailure(missing, req, ""), "failed": Failure(missing)} {
		require.Contains(t, err.Error(), "lockstep: no pool: make it by lockstep pool", name)
		require.NotContains(t, err.Error(), "cannot be reached", name)
	}
}

func TestParkFailure_Message_HasItsTimeAndNoPosition(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "r", LockID: "me", Position: 2, Waiting: 2, At: time.Date(2026, 1, 2, 15, 35, 2, 0, time.UTC)}
	parked := ParkFailure(busy, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "me"}}, "")
	require.Equal(t, `lockstep: the step has not run, and waits for its lock: lockstep: "r" is busy for "me" (as of 2026-01-02 15:35:02 UTC): `+
		`others are ahead in the queue`, messageOf(t, parked))
	details, _ := Parked(parked)
	require.Equal(t, 2, details.Position)
	require.Contains(t, messageOf(t, WaitingFailure(busy, time.Second)), "(position 2 of 2 in the queue, as of 2026-01-02 15:35:02 UTC)")
}

func TestText_LostLease_GivesTheReason(t *testing.T) {
	t.Parallel()
	require.Contains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b"})), "its lease expired before it was renewed")
	require.NotContains(t, messageOf(t, Failure(&lockcore.LostError{Resource: "r", LockID: "a", By: "b", Reason: "forced"})), "its time was over")
}

func TestRewriteField_RequestField_NamesTheUsersField(t *testing.T) {
	t.Parallel()
	refused := &lockcore.InvalidError{Field: "Request.HoldTTL", Value: "1s", Bound: "not less than Request.TTL"}
	got := RewriteField(refused, "Locks.").Error()
	require.Contains(t, got, "Locks.HoldTTL")
	require.Contains(t, got, "Locks.TTL")
	require.NotContains(t, got, "Request")
	require.Equal(t, lockcore.ErrBusy, RewriteField(lockcore.ErrBusy, "Locks."))
}
