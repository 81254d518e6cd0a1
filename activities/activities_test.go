package activities_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/goleak"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLocker records its calls, and answers with err.
type fakeLocker struct {
	err      error
	request  lockcore.StepRequest
	queued   bool
	renewed  []lockcore.Lease
	left     []lockcore.Lease
	released []lockcore.Release
	verified []lockcore.Verify
	bars     []lockcore.Raise
	tended   []string
	// recheckErr, if not nil, is the error of Recheck instead of err.
	recheckErr error
	rechecked  []lockcore.StepRequest
	// status is the only status that Status lists.
	status lockcore.Status
}

func (f *fakeLocker) Enter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return f.enter(ctx, req, true)
}

func (f *fakeLocker) TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error) {
	return f.enter(ctx, req, false)
}

func (f *fakeLocker) enter(_ context.Context, req lockcore.StepRequest, queue bool) ([]lockcore.Lease, error) {
	f.request, f.queued = req, queue
	if f.err != nil {
		return nil, f.err
	}
	return []lockcore.Lease{lease(req.LockID)}, nil
}

func (f *fakeLocker) Renew(_ context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error) {
	f.renewed = leases
	return leases, f.err
}

func (f *fakeLocker) LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error) {
	return true, f.Leave(ctx, lease)
}

func (f *fakeLocker) Leave(_ context.Context, leases ...lockcore.Lease) error {
	f.left = leases
	return f.err
}

func (f *fakeLocker) ReleaseCommitted(ctx context.Context, of lockcore.Release) ([]lockcore.LostError, error) {
	return nil, f.Release(ctx, of)
}

func (f *fakeLocker) Release(_ context.Context, r lockcore.Release) error {
	f.released = append(f.released, r)
	return f.err
}

func (f *fakeLocker) Verify(_ context.Context, v lockcore.Verify) error {
	f.verified = append(f.verified, v)
	return f.err
}

func (f *fakeLocker) Raise(_ context.Context, r lockcore.Raise) error {
	f.bars = append(f.bars, r)
	return f.err
}

func (f *fakeLocker) CollectionID(context.Context) (string, error) { return "own", nil }

func (f *fakeLocker) KnownCollectionID() string { return "own" }

func (f *fakeLocker) Replaces(_ context.Context, id string) (bool, string, error) {
	return id == "replaced", "own", nil
}

func (f *fakeLocker) Replaced(context.Context, string, string, ...string) ([]string, error) {
	return nil, nil
}

func (f *fakeLocker) Recheck(_ context.Context, req lockcore.StepRequest) (time.Duration, error) {
	f.request, f.rechecked = req, append(f.rechecked, req)
	return 7 * time.Second, cmp.Or(f.recheckErr, f.err)
}

func (f *fakeLocker) Status(context.Context, lockcore.Filter) iter.Seq2[lockcore.Status, error] {
	return func(yield func(lockcore.Status, error) bool) { yield(f.status, f.err) }
}

func (f *fakeLocker) WatchFor(resource string) { f.tended = append(f.tended, resource) }

func lease(lockID string) lockcore.Lease {
	return lockcore.Lease{
		Resource: "account/1", LockID: lockID, Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1},
		Mode: lockcore.ModeExclusive, Fence: 7, Left: lockcore.Forever, Joined: true,
	}
}

const ownLockID = "default-test-namespace/default-test-workflow-id"

// call runs an activity as a caller in another language does: by name, with JSON in and out.
func call(t *testing.T, f *fakeLocker, name, in string) (string, error) {
	t.Helper()
	return callFrom(t, f, true, name, in)
}

// callFrom calls from a workflow, or without one.
func callFrom(t *testing.T, f *fakeLocker, workflow bool, name, in string) (string, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetExecuteActivitiesInWorkflow(workflow)
	activities.Register(env, f)
	value, err := env.ExecuteActivity(name, json.RawMessage(in))
	if err != nil {
		return "", err
	}
	if !value.HasValue() {
		return "", nil
	}
	var out json.RawMessage
	require.NoError(t, value.Get(&out))
	return string(out), nil
}

const leaseText = `{"resource":"account/1","lockId":"` + ownLockID + `","part":"p","order":{"schedule":1,"attempt":1},"mode":"X","fence":7,"left":"forever","joined":true}`

func TestAcquire_Workflow_RequestsInItsName(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	out, err := call(t, f, "lockstep.Acquire", `{"resources":[{"name":"account/1","heldSince":3},{"name":"seats","mode":"S","limit":3}],
		"part":"p","schedule":4,"ttl":"20s","holdTtl":"forever","reacquire":true,"newFence":true,"saga":"2"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"lockId":"`+ownLockID+`","leases":[`+leaseText+`]}`, out)
	require.True(t, f.queued)
	require.Empty(t, f.left)
	require.Contains(t, f.request.Comment, "lockstep.Acquire")
	require.NotEmpty(t, f.request.Call)
	f.request.Comment, f.request.Call = "", ""
	require.Equal(t, lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: ownLockID, Run: "default-test-run-id", Part: "default-test-run-id/p", Order: lockcore.Order{Schedule: 4, Attempt: 1}, Saga: "2"}, Resources: []lockcore.Resource{{Name: "account/1"}, lockcore.SharedLimit("seats", 3)}, HeldSince: map[string]uint32{"account/1": 3},
		TTL: 20 * time.Second, Keep: true, HoldTTL: lockcore.Forever,
		Reacquire: true, NewFence: true, Owner: "default-test-namespace/default-test-workflow-id", MaxWait: 2 * time.Second,
	}, f.request)
}

func TestAcquire_OwnLockID_IsRequested(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	_, err := call(t, f, "lockstep.Acquire", `{"lockId":"mine","owner":"me","comment":"why","resources":[{"name":"account/1"}],"holdOnly":true}`)
	require.NoError(t, err)
	require.Equal(t, "mine", f.request.LockID)
	require.Equal(t, "me", f.request.Owner)
	require.Equal(t, "why", f.request.Comment)
	require.True(t, f.request.HoldOnly && f.request.Keep)
	require.Zero(t, f.request.MaxWait, "it does not wait in its slot")
	require.Empty(t, f.left, "there is no part to leave")
}

func TestAcquire_ParkOrTry_IsNotRetryable(t *testing.T) {
	t.Parallel()
	busy := &lockcore.BusyError{Resource: "account/1", Position: 2}
	for field, failureType := range map[string]string{"park": "lockstep.Parked", "try": "lockstep.Busy"} {
		f := &fakeLocker{err: busy}
		_, err := call(t, f, "lockstep.Acquire", `{"resources":[{"name":"account/1"}],"`+field+`":true}`)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, failureType, app.Type())
		require.True(t, app.NonRetryable())
		require.Equal(t, field == "park", f.queued)
	}
}

func TestRenewAndLeave_LeasesOfAcquire_AreAccepted(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	out, err := call(t, f, "lockstep.Renew", `{"leases":[`+leaseText+`]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"leases":[`+leaseText+`]}`, out)
	require.Equal(t, []lockcore.Lease{lease(ownLockID)}, f.renewed)
	out, err = call(t, f, "lockstep.Leave", `{"leases":[`+leaseText+`]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, out)
	require.Equal(t, []lockcore.Lease{lease(ownLockID)}, f.left)
}

// A reset repeats a release that is pending, in the new run.
func TestRelease_RunThatDecidedItWasReset_EndsItsRequestsToo(t *testing.T) {
	t.Parallel()
	for run, want := range map[string][]string{"": {"default-test-run-id"}, "default-test-run-id": {"default-test-run-id"}, "before": {"default-test-run-id", "before"}} {
		for of, lockID := range map[string]string{"": ownLockID, `"step":"1/Do",`: ownLockID + "/1%2FDo"} {
			f := &fakeLocker{status: lockcore.Status{Resource: "account/1", Holder: lockcore.Holder{Run: "before"}}}
			_, err := call(t, f, "lockstep.Release", `{`+of+`"resources":["account/1"],"schedule":4,"run":"`+run+`"}`)
			require.NoError(t, err)
			var runs []string
			for _, r := range f.released {
				require.Equal(t, lockcore.LastAttempt(4), r.Order)
				require.Equal(t, lockID, r.LockID)
				runs = append(runs, r.Run)
			}
			require.Equal(t, want, runs)
		}
	}
	f := &fakeLocker{} // the earlier run holds nothing, perhaps because it has lost it
	_, err := call(t, f, "lockstep.Release", `{"resources":["account/1"],"schedule":4,"run":"before"}`)
	require.NoError(t, err)
	require.Len(t, f.released, 1)
}

func TestRelease_ManyResources_EndsThemInBatches(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	names := make([]string, 250)
	for i := range names {
		names[i] = fmt.Sprintf("r%03d", i)
	}
	in, err := json.Marshal(map[string]any{"lockId": "mine", "resources": names, "schedule": 9, "leases": []json.RawMessage{json.RawMessage(leaseText)}})
	require.NoError(t, err)
	_, err = call(t, f, "lockstep.Release", string(in))
	require.NoError(t, err)
	var got []string
	for _, r := range f.released {
		require.LessOrEqual(t, len(r.Resources), 100)
		require.Equal(t, "mine", r.LockID)
		require.Empty(t, r.Run)
		require.Equal(t, lockcore.LastAttempt(9), r.Order)
		got = append(got, r.Resources...)
	}
	require.Equal(t, names, got)
	require.Len(t, f.left, 1)
}

func TestActivities_Failures_AreTyped(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"lockstep.Acquire": `{"resources":[{"name":"account/1"}]}`,
		"lockstep.Renew":   `{"leases":[` + leaseText + `]}`,
		"lockstep.Leave":   `{"leases":[` + leaseText + `]}`,
		"lockstep.Release": `{"resources":["account/1"]}`,
		"lockstep.Bar":     `{"resources":["account/1"],"saga":"1","schedule":1}`,
	} {
		for want, err := range map[string]error{
			"lockstep.Lost": &lockcore.LostError{Resource: "account/1"}, "lockstep.Unavailable": errors.New("no primary"),
			"lockstep.Busy": &lockcore.BusyError{Resource: "account/1"},
		} {
			_, err := call(t, &fakeLocker{err: err}, name, in)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app, name)
			require.Equal(t, want, app.Type())
		}
	}
}

// methodNames lists the names under which the SDK registers the methods of a struct.
type methodNames []string

func (n *methodNames) RegisterActivityWithOptions(a any, options activity.RegisterOptions) {
	for m := range reflect.TypeOf(a).Methods() {
		*n = append(*n, options.Name+m.Name)
	}
}

// Every exported method is registered under "lockstep." and its name, which other languages use.
func TestActivities_Names_AreTheWireNames(t *testing.T) {
	t.Parallel()
	var names methodNames
	activities.Register(&names, &fakeLocker{})
	require.Equal(t, methodNames{
		wire.ActivityAcquire, wire.ActivityBar, wire.ActivityLeave, wire.ActivityRelease, wire.ActivityRenew,
		wire.ActivityVerify, wire.ActivityWait,
	}, names)
}

func TestVerify_Used_ReleasesNothing(t *testing.T) {
	t.Parallel()
	uses := []lockcore.Use{{Resource: "account/1", Order: lockcore.LastAttempt(2)}}
	since := time.Date(2026, 11, 1, 11, 59, 0, 0, time.UTC)
	for in, want := range map[string]lockcore.Verify{
		``:                              {},
		`,"run":"default-test-run-id"`:  {},
		`,"run":"a run before a reset"`: {LostSince: since},
		`,"inherits":true`:              {LostSince: since},
	} {
		want.LockID, want.Run, want.Used, want.Inherits = ownLockID, "default-test-run-id", uses, true // always in the test environment
		f := &fakeLocker{}
		out, err := call(t, f, "lockstep.Verify", `{"used":[{"resource":"account/1","schedule":2}],"started":"2026-11-01T12:00:00Z"`+in+`}`)
		require.NoError(t, err)
		require.JSONEq(t, `{}`, out)
		require.Equal(t, []lockcore.Verify{want}, f.verified, in)
		require.Empty(t, f.released)
	}
	f := &fakeLocker{err: &lockcore.LostError{Resource: "account/1"}}
	_, err := call(t, f, "lockstep.Verify", `{"used":[{"resource":"account/1","schedule":2}]}`)
	require.ErrorIs(t, wire.LockError(err), lockcore.ErrLost)
	_, err = call(t, f, "lockstep.Verify", `{}`)
	require.ErrorIs(t, wire.LockError(err), lockcore.ErrInvalid)
}

func TestRelease_Resources_ReleasesAndVerifiesNothing(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	_, err := call(t, f, "lockstep.Release", `{"resources":["account/1"],"schedule":3}`)
	require.NoError(t, err)
	require.Equal(t, []lockcore.Release{{
		LockID: ownLockID, Run: "default-test-run-id", Resources: []string{"account/1"}, Order: lockcore.LastAttempt(3),
	}}, f.released)
	require.Empty(t, f.verified)
}

// The orders of the run that the release reaches begin again at 1.
func TestRelease_HandedOver_EndsOnlyRequestsOfTheRunBefore(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	_, err := call(t, f, "lockstep.Release", `{"resources":["account/1"],"schedule":3,"run":"before","handed":true}`)
	require.NoError(t, err)
	require.Equal(t, []lockcore.Release{{LockID: ownLockID, Run: "before", Resources: []string{"account/1"}, Order: lockcore.LastAttempt(3)}}, f.released)
}

// All activities without a workflow would be one party.
func TestActivities_NoWorkflow_NeedALockID(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"lockstep.Acquire": `"resources":[{"name":"account/1"}]`, "lockstep.Release": `"resources":["account/1"]`,
		"lockstep.Wait": `"resource":{"name":"account/1"}`,
	} {
		_, err := callFrom(t, &fakeLocker{}, false, name, "{"+in+"}")
		require.ErrorIs(t, wire.LockError(err), lockcore.ErrInvalid, name)
		require.ErrorContains(t, err, "lockId")
		_, err = callFrom(t, &fakeLocker{}, false, name, `{"lockId":"mine",`+in+"}")
		require.NoError(t, err, name)
	}
}

// A step that upgrades waits under a hold, whose loss must end the wait.
func TestWait_RunHoldsTheResource_AsksWhetherItWasLost(t *testing.T) {
	t.Parallel()
	f := &fakeLocker{}
	_, err := call(t, f, "lockstep.Wait", `{"resource":{"name":"account/1","mode":"X","heldSince":3},"part":"p","order":{"schedule":4,"attempt":1}}`)
	require.NoError(t, err)
	require.Len(t, f.rechecked, 1)
	require.Equal(t, map[string]uint32{"account/1": 3}, f.rechecked[0].HeldSince)
}
