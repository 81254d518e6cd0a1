package wire_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// filled returns a value of which every exported field, at every depth, is set.
func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC)))
		return
	case wire.Owner:
		v.Set(reflect.ValueOf(wire.Owner{Workflow: "order-7"}))
		return
	case wire.Duration, time.Duration:
		v.SetInt(int64(90 * time.Second))
		return
	case lockcore.Mode:
		v.Set(reflect.ValueOf(lockcore.ModeShared))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint32:
		v.SetUint(8)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	default:
		panic("a field of a kind that the test cannot set: " + v.Type().String())
	}
}

// failureOf describes an application failure as a history records it.
func failureOf(t *testing.T, err error) map[string]any {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	var details any
	if app.HasDetails() {
		require.NoError(t, app.Details(&details))
	}
	return map[string]any{
		"message": app.Message(), "type": app.Type(), "nonRetryable": app.NonRetryable(), "category": app.Category(), "details": details,
	}
}

// TestGolden_WireFormat_IsUnchanged compares every payload, header key, activity name and failure with a recorded file. Histories
// and workers of other versions depend on them: a name never changes, and a field is only ever appended.
func TestGolden_WireFormat_IsUnchanged(t *testing.T) {
	t.Parallel()
	all := map[string]any{
		"headers": []string{wire.HeaderKey, wire.HandoverKey, wire.DueKey, wire.OwnerKey},
		"scopes":  []string{wire.ScopeStep, wire.ScopeSaga},
		"plugin":  wire.PluginName,
		"waitID":  wire.WaitID(7),
		"activities": []string{
			wire.ActivityPrefix, wire.ActivityAcquire, wire.ActivityRenew, wire.ActivityLeave, wire.ActivityRelease, wire.ActivityWait,
			wire.ActivityBar, wire.ActivityVerify,
		},
		"failureTypes": []string{
			wire.FailureBusy, wire.FailureParked, wire.FailureLost, wire.FailureSuperseded, wire.FailureDeadlock, wire.FailureInvalid,
			wire.FailureUnavailable, wire.FailureOtherRun, wire.FailureOtherCollection, wire.FailureResultPending, wire.FailureEnded,
			wire.FailureSagaFailed,
		},
		"payloads": map[string]any{
			"Guard": filled[wire.Guard](), "Handover": filled[wire.Handover](), "Owner": filled[wire.Owner](), "Owner by name": wire.Owner{Name: "team"},
			"Lease": filled[wire.Lease](), "Holder": filled[wire.Holder](), "Use": filled[wire.Use](),
			"AcquireParams": filled[wire.AcquireParams](), "AcquireResult": filled[wire.AcquireResult](),
			"RenewParams": filled[wire.RenewParams](), "RenewResult": filled[wire.RenewResult](),
			"LeaveParams": filled[wire.LeaveParams](), "LeaveResult": filled[wire.LeaveResult](),
			"ReleaseParams": filled[wire.ReleaseParams](), "ReleaseResult": filled[wire.ReleaseResult](),
			"WaitParams": filled[wire.WaitParams](), "BarParams": filled[wire.BarParams](), "BarResult": filled[wire.BarResult](),
			"VerifyParams": filled[wire.VerifyParams](), "VerifyResult": filled[wire.VerifyResult](),
		},
		"zero payloads": map[string]any{
			"Guard": wire.Guard{}, "Handover": wire.Handover{}, "Lease": wire.Lease{}, "Holder": wire.Holder{}, "Use": wire.Use{},
			"AcquireParams": wire.AcquireParams{}, "AcquireResult": wire.AcquireResult{}, "RenewParams": wire.RenewParams{},
			"LeaveParams": wire.LeaveParams{}, "ReleaseParams": wire.ReleaseParams{}, "WaitParams": wire.WaitParams{},
			"BarParams": wire.BarParams{}, "VerifyParams": wire.VerifyParams{},
		},
		"details": map[string]any{
			"Busy": filled[wire.BusyDetails](), "Parked": filled[wire.ParkedDetails](), "Lost": filled[wire.LostDetails](),
			"Superseded": filled[wire.SupersededDetails](), "Deadlock": filled[wire.DeadlockDetails](),
			"OtherRun": filled[wire.OtherRunDetails](), "Invalid": filled[wire.InvalidDetails](),
		},
		"failures": failures(t),
	}
	got, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	const file = "testdata/wire.golden.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

// failures returns the failures of lockcore's errors with all fields set, without the messages, which come from lockcore.
func failures(t *testing.T) map[string]any {
	t.Helper()
	busy, lost, superseded := filled[lockcore.BusyError](), filled[lockcore.LostError](), filled[lockcore.SupersededError]()
	deadlock, invalid, other := filled[lockcore.DeadlockError](), filled[lockcore.InvalidError](), filled[lockcore.OtherRunError]()
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "lock", Order: lockcore.Order{Schedule: 2, Attempt: 3}}, Resources: []lockcore.Resource{lockcore.Exclusive("b"), lockcore.Exclusive("a")}}
	all := map[string]any{}
	for name, err := range map[string]error{
		"busy": wire.Failure(&busy), "lost": wire.Failure(&lost), "superseded": wire.Failure(&superseded), "deadlock": wire.Failure(&deadlock),
		"invalid": wire.Failure(&invalid), "other run": wire.Failure(&other), "database": wire.Failure(os.ErrClosed),
		"tried": wire.TriedFailure(&busy, "1/Debit"), "parked": wire.ParkFailure(&busy, req, "1/Debit"),
		"parked by an outage": wire.ParkFailure(os.ErrClosed, req, ""),
		"deadlock, never ran": wire.StepFailure(&deadlock, "1/Debit"), "invalid, never ran": wire.StepFailure(&invalid, "1/Debit"),
	} {
		f := failureOf(t, err)
		delete(f, "message")
		all[name] = f
	}
	return all
}

// A field that lockcore's errors gain must travel too.
func TestLockError_FailureWithAllFields_IsReadBack(t *testing.T) {
	t.Parallel()
	busy, lost, superseded := filled[lockcore.BusyError](), filled[lockcore.LostError](), filled[lockcore.SupersededError]()
	deadlock, invalid, other := filled[lockcore.DeadlockError](), filled[lockcore.InvalidError](), filled[lockcore.OtherRunError]()
	for _, err := range []error{&busy, &lost, &superseded, &deadlock, &invalid, &other} {
		require.Equal(t, err, wire.LockError(recorded(t, wire.Failure(err))))
	}
}

// recorded returns an application failure as a reader of a history gets it.
func recorded(t *testing.T, err error) error {
	t.Helper()
	converter := temporal.GetDefaultFailureConverter()
	return converter.FailureToError(converter.ErrorToFailure(err))
}

func TestLeases_AllFields_SurviveTheWire(t *testing.T) {
	t.Parallel()
	leases := []lockcore.Lease{filled[lockcore.Lease]()}
	require.Equal(t, leases, wire.CoreLeases(wire.Leases(leases)))
}
