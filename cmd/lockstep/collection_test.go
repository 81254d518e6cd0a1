package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// demoAccounts is the number of accounts in these runs of the demo, each with 1,000.00.
const demoAccounts = 6

// What happens to the collection of the locks under the demo's load, followed by the commands that docs/production.md names. Every
// transfer ends, no money is lost, no worker is started again, and once the transfers that were in flight have ended, no audit is
// wrong.
func TestDemo_CollectionChanges_EverySagaEnds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, coll *mongo.Collection, dump []any)
		then   []string
	}{
		"Clear":      {func(*testing.T, *mongo.Collection, []any) {}, []string{"clear"}},
		"Drop":       {func(t *testing.T, coll *mongo.Collection, _ []any) { require.NoError(t, coll.Drop(t.Context())) }, []string{"init", "replaces"}},
		"DeleteMany": {deleteMany, []string{"init", "replaces"}},
		"Restore":    {restore, []string{"init", "clear", "replaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			demo := start(t, servers(t), "demo", "--transfers", "100", "--accounts", fmt.Sprint(demoAccounts), "--kill=false", "--keep")
			run := started(t, demo.Dir)
			l := &locks{database: databaseOf(run)}
			db := testenv.Mongo(t).Client().Database(l.database)
			t.Cleanup(func() { require.NoError(t, db.Drop(context.Background())) })
			coll := db.Collection(defaultCollection)
			demo.untilDone(t, 20)
			old := l.collectionID(t, coll)
			dump := dumped(t, coll)
			demo.untilDone(t, 40)
			test.change(t, coll, dump)
			for _, command := range test.then {
				switch command {
				case "init":
					l.prints(t, "init")
				case "clear":
					t.Log(l.prints(t, "clear", "--reason", "for the test"))
				case "replaces":
					if now := l.collectionID(t, coll); now != old {
						t.Log(l.prints(t, "replaces", old, "--reason", "for the test"))
					}
				}
			}
			after := time.Now()
			code := demo.wait(t)
			stdout := demo.stdout.String()
			t.Logf("exit status %d\n%s%s", code, stdout, demo.stderr.String())
			require.Regexp(t, `transfers +\d+ committed, \d+ compensated, 0 failed otherwise`, stdout)
			require.Regexp(t, `money +6000.00 of 6000.00: conserved`, stdout)
			requireAuditsRight(t, run, after)
			s, err := lockcore.New(coll, lockcore.Config{}) // a process that starts later is not refused
			require.NoError(t, err)
			require.NoError(t, s.CreateIndexes(t.Context()))
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

func deleteMany(t *testing.T, coll *mongo.Collection, _ []any) {
	t.Helper()
	_, err := coll.DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
}

// dumped returns the documents of a collection, as mongodump does.
func dumped(t *testing.T, coll *mongo.Collection) (dump []any) {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	for cursor.Next(t.Context()) {
		dump = append(dump, append(bson.Raw{}, cursor.Current...))
	}
	require.NoError(t, cursor.Err())
	return dump
}

// restore is mongorestore with --drop: it inserts, and skips documents that workers have inserted meanwhile.
func restore(t *testing.T, coll *mongo.Collection, dump []any) {
	t.Helper()
	require.NoError(t, coll.Drop(t.Context()))
	_, err := coll.InsertMany(t.Context(), dump, options.InsertMany().SetOrdered(false))
	if !mongo.IsDuplicateKeyError(err) {
		require.NoError(t, err)
	}
}

// untilDone waits until the demo has done a number of transfers.
func (p *process) untilDone(t *testing.T, transfers int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), fmt.Sprintf("transfers: %d of", transfers))
	}, within, 10*time.Millisecond, "it does not progress: %s", &p.stderr)
}

// collectionID returns the ID that doctor reports, or "" if there is none.
func (l *locks) collectionID(t *testing.T, coll *mongo.Collection) string {
	t.Helper()
	var identity struct{ ID string }
	require.Eventually(t, func() bool {
		return coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: 0}}).Decode(&identity) == nil
	}, within, 10*time.Millisecond, "the workers make no identity")
	return identity.ID
}

// requireAuditsRight requires that all audits are right that began after the transfers which were in flight at a time had ended. Until
// then an audit may see a transfer that has lost its locks and is not undone yet.
func requireAuditsRight(t *testing.T, run string, after time.Time) {
	t.Helper()
	c := testenv.Temporal(t)
	quiet := after
	var audits []*workflowpb.WorkflowExecutionInfo
	require.Eventually(t, func() bool { // the list lags behind
		audits, quiet = nil, after
		open := 0
		for token := []byte(nil); ; {
			page, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
				Namespace: client.DefaultNamespace, Query: fmt.Sprintf("TaskQueue = %q", run), NextPageToken: token,
			})
			if err != nil {
				return false
			}
			for _, w := range page.GetExecutions() {
				closed := w.GetCloseTime().AsTime()
				switch {
				case w.GetCloseTime() == nil:
					open++
				case strings.HasPrefix(w.GetExecution().GetWorkflowId(), "audit-"):
					audits = append(audits, w)
				case w.GetStartTime().AsTime().Before(after) && closed.After(quiet):
					quiet = closed
				}
			}
			if token = page.GetNextPageToken(); len(token) == 0 {
				return open == 0 && len(audits) > 0
			}
		}
	}, within, 500*time.Millisecond)
	right, wrong, lost, before := 0, 0, 0, 0
	for _, a := range audits {
		var total int64
		err := c.GetWorkflow(t.Context(), a.GetExecution().GetWorkflowId(), a.GetExecution().GetRunId()).Get(t.Context(), &total)
		isRight := err != nil || total == demoAccounts*100_000
		switch {
		case a.GetStartTime().AsTime().Before(quiet):
			if !isRight {
				before++
			}
		case err != nil:
			lost++
		case isRight:
			right++
		default:
			wrong++
		}
	}
	t.Logf("the transfers in flight ended %s after the commands; audits before that: %d wrong; from then on: %d right, %d wrong, %d failed",
		quiet.Sub(after).Round(time.Millisecond), before, right, wrong, lost)
	require.Zero(t, wrong)
	require.NotZero(t, right)
}

func TestClearAndReplaces_ReportWhatTheyDid(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	require.Contains(t, l.fails(t, 1, "clear", "--reason", "restored"), "has no collection")
	l.ask(t, "a", "", "account/1")
	require.Contains(t, l.fails(t, 2, "clear"), "--reason is required")
	require.Contains(t, l.fails(t, 2, "replaces", "old"), "--reason is required")
	require.Contains(t, l.fails(t, 2, "replaces", "--reason", "moved"), "wants the ID")
	own, err := l.CollectionID(t.Context())
	require.NoError(t, err)
	require.Contains(t, l.prints(t, "clear", "--reason", "restored"), "ended by force: 1 hold and 0 claims on 1 resource\n")
	require.Contains(t, l.prints(t, "show", "account/1"), "restored (")
	require.Contains(t, l.prints(t, "clear", "--reason", "again"), "ended by force: 0 holds and 0 claims on 0 resources\n")
	require.Contains(t, l.fails(t, 1, "replaces", own, "--reason", "moved"), "of this collection itself")
	require.Contains(t, l.prints(t, "replaces", "OLD", "--reason", "moved"), own+" replaces that with the ID OLD")
	replaces, _, err := l.Replaces(t.Context(), "OLD")
	require.NoError(t, err)
	require.True(t, replaces)
}

// Without a worker that makes an identity nothing can be recorded, until init makes a collection.
func TestReplaces_AfterDeleteManyWithoutWorkers_NeedsInit(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	old := l.collectionID(t, l.collection(t))
	deleteMany(t, l.collection(t), nil)
	page, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| all documents are deleted .*$`).FindString(string(page))
	require.NotEmpty(t, row)
	for _, command := range regexp.MustCompile("`lockstep ([a-z]+)").FindAllStringSubmatch(row, -1) {
		args := map[string][]string{"init": {"init"}, "replaces": {"replaces", old, "--reason", "for the test"}}[command[1]]
		code, _, stderr := l.lockstep(t, args...)
		require.Zero(t, code, stderr)
	}
	now := l.collectionID(t, l.collection(t))
	require.NotEqual(t, old, now)
	replaces, _, err := newSteps(t, lockcore.New, l.collection(t)).Replaces(t.Context(), old)
	require.NoError(t, err)
	require.True(t, replaces)
}
