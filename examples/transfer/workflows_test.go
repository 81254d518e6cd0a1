package transfer_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// opening is the first balance of each account.
const opening = 1000

// stage is a bank with accounts, and a worker that guards steps.
type stage struct {
	client client.Client
	queue  string
	bank   *transfer.Bank
	names  []string
}

func onStage(t *testing.T, accounts int, bank transfer.Bank) *stage {
	t.Helper()
	db := testenv.Mongo(t)
	bank.Accounts = db.Collection("accounts")
	require.NoError(t, transfer.OpenAccounts(t.Context(), bank.Accounts, accounts, opening))
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	s := &stage{client: testenv.Temporal(t), queue: testenv.TaskQueue(t), bank: &bank}
	for i := range accounts {
		s.names = append(s.names, transfer.AccountID(i))
	}
	w := sdkworker.New(s.client, s.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	transfer.Register(w, s.bank)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return s
}

// start starts a workflow. Its end is bounded by the test's own time.
func (s *stage) start(t *testing.T, workflow, arg any) client.WorkflowRun {
	t.Helper()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: s.queue}, workflow, arg)
	require.NoError(t, err)
	return run
}

// replay runs the workflow's code against its history, as another worker would. It returns the scheduled activities.
func (s *stage) replay(t *testing.T, run client.WorkflowRun) (steps []string) {
	t.Helper()
	history := &historypb.History{}
	for iter := s.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); iter.HasNext(); {
		event, err := iter.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
		if step := event.GetActivityTaskScheduledEventAttributes(); step != nil {
			steps = append(steps, step.GetActivityType().GetName())
		}
	}
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins:                  []sdkworker.Plugin{worker.NewReplayPlugin()},
		DisableDeadlockDetection: true, // a busy machine may take longer than its limit of a second
	})
	require.NoError(t, err)
	replayer.RegisterWorkflow(transfer.TransferWorkflow)
	require.NoError(t, replayer.ReplayWorkflowHistory(nil, history))
	return steps
}

// All pairs of accounts in both directions, with auditors at the same time: each final balance is the sum of the committed
// transfers, and every auditor sees the whole sum.
func TestTransfers_WithAuditsAtOnce_AreIsolated(t *testing.T) {
	t.Parallel()
	s := onStage(t, 3, transfer.Bank{Pause: time.Millisecond, Seed: 3, FailPercent: 30})
	balances := map[string]int64{}
	var transfers []transfer.Transfer
	for i, from := range s.names {
		balances[from] = opening
		for j, to := range s.names {
			if i != j {
				id := fmt.Sprintf("%s-%d-to-%d", s.queue, i, j)
				key := fmt.Sprintf("%d to %d", i, j)
				transfers = append(transfers, transfer.Transfer{ID: id, Key: key, From: from, To: to, Amount: 10 + int64(3*i+j), Guarded: true})
			}
		}
	}
	audits := []client.WorkflowRun{s.start(t, transfer.AuditWorkflow, transfer.Audit{Accounts: s.names, Guarded: true})}
	runs := make([]client.WorkflowRun, len(transfers))
	for i, tr := range transfers {
		runs[i] = s.start(t, transfer.TransferWorkflow, tr)
	}
	audits = append(audits, s.start(t, transfer.AuditWorkflow, transfer.Audit{Accounts: s.names, Guarded: true}))

	var compensated int
	for i, tr := range transfers {
		if err := runs[i].Get(t.Context(), nil); err != nil {
			requireFailure(t, transfer.FailureCheck, err)
			compensated++
			continue
		}
		balances[tr.From] -= tr.Amount
		balances[tr.To] += tr.Amount
	}
	for _, audit := range audits {
		var total int64
		require.NoError(t, audit.Get(t.Context(), &total))
		require.EqualValues(t, 3*opening, total)
	}
	for name, want := range balances {
		require.Equal(t, want, balanceOf(t, s.bank, name), name)
	}
	require.Positive(t, compensated, "the seed lets some checks fail")
	require.Less(t, compensated, len(transfers), "and some not")
}

func TestTransfer_FailedCheck_IsCompensatedAndReplays(t *testing.T) {
	t.Parallel()
	s := onStage(t, 2, transfer.Bank{FailPercent: 100})
	run := s.start(t, transfer.TransferWorkflow, transfer.Transfer{ID: s.queue, From: s.names[0], To: s.names[1], Amount: 300, Guarded: true})
	requireFailure(t, transfer.FailureCheck, run.Get(t.Context(), nil))
	require.EqualValues(t, opening, balanceOf(t, s.bank, s.names[0]))
	require.EqualValues(t, opening, balanceOf(t, s.bank, s.names[1]))
	require.Equal(t, []string{"Debit", "Check", "lockstep.Bar", "UndoDebit"}, s.replay(t, run))
}

func TestTransfer_InsufficientFunds_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := onStage(t, 2, transfer.Bank{})
	run := s.start(t, transfer.TransferWorkflow, transfer.Transfer{ID: s.queue, From: s.names[0], To: s.names[1], Amount: opening + 1, Guarded: true})
	requireFailure(t, transfer.FailureFunds, run.Get(t.Context(), nil))
	require.EqualValues(t, opening, balanceOf(t, s.bank, s.names[0]))
	require.EqualValues(t, opening, balanceOf(t, s.bank, s.names[1]))
}

// The bank must be as naive as documented. Otherwise the control would prove nothing.
func TestCredit_WithoutLocks_LosesUpdates(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("accounts")
	require.NoError(t, transfer.OpenAccounts(t.Context(), coll, 1, opening))
	bank := &transfer.Bank{Accounts: coll, Pause: 50 * time.Millisecond}
	for round := range int64(100) {
		var both sync.WaitGroup
		for _, who := range []string{"a", "b"} {
			both.Go(func() {
				id := fmt.Sprint(round, who)
				assert.NoError(t, bank.Credit(t.Context(), transfer.Transfer{ID: id, To: transfer.AccountID(0), Amount: 5}))
			})
		}
		both.Wait()
		if balanceOf(t, bank, transfer.AccountID(0)) < opening+(round+1)*2*5 {
			return
		}
	}
	t.Fatal("two credits at the same time were both kept, each time")
}

func requireFailure(t *testing.T, kind string, err error) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, kind, app.Type())
}
