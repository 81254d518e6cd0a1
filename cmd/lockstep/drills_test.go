package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// doorKeeper, if it is set, has this test binary be a worker that is to be killed: "database queue".
const doorKeeper = "LOCKSTEP_TEST_DOOR_KEEPER"

// keepDoor serves the activities of a door until the process is killed. Its locks end 45 s after that: the drill has 20 s of them.
func keepDoor(database, queue string) error {
	m, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("LOCKSTEP_MONGODB_URI")))
	if err != nil {
		return err
	}
	locker, err := lockcore.New(m.Database(database).Collection("locks"), lockcore.Config{TTL: 45 * time.Second})
	if err != nil {
		return err
	}
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker, Janitor: worker.JanitorOptions{Off: true}})
	if err != nil {
		return err
	}
	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		return err
	}
	d := &door{work: make(chan struct{})}
	w := sdkworker.New(c, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, Identity: "the keeper", DisableWorkflowWorker: true})
	w.RegisterActivity(d.Work)
	return w.Run(make(chan any))
}

// A drill: a worker is killed while its step holds the door.
func TestAKilledWorkersLockIsFoundAndEnded(t *testing.T) {
	t.Parallel()
	d := openDoorWith(t, sdkworker.Options{LocalActivityWorkerOnly: true})
	keeper := exec.CommandContext(t.Context(), os.Args[0])
	keeper.Env = append(keeper.Environ(), append(servers(t), doorKeeper+"="+d.database+" "+d.queue)...)
	require.NoError(t, keeper.Start())
	killed := d.come(t, "Enter", lockcore.StateHolding)
	waits := d.come(t, "Enter", lockcore.StateWaiting)
	require.Eventually(t, func() bool { // it waits without a worker
		found, err := d.client.DescribeWorkflowExecution(t.Context(), waits.GetID(), "")
		return err == nil && slices.ContainsFunc(found.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetActivityType().GetName() == "lockstep.Wait" && a.GetAttempt() > 1
		})
	}, within, 50*time.Millisecond)
	require.NoError(t, keeper.Process.Kill())
	_ = keeper.Wait() // it was killed

	var why string
	require.Eventually(t, func() bool {
		why = d.said(t, "why", waits.GetID())
		return strings.Contains(why, "nothing was heard of its worker the keeper for ")
	}, within, 500*time.Millisecond)
	_, repair, found := strings.Cut(why, "or now: lockstep ")
	require.True(t, found, why)
	repair, _, _ = strings.Cut(repair, "\n")
	d.workAgain(t)
	c := exec.CommandContext(t.Context(), "bash", "-c", "exec "+binary+" "+repair+" --now --yes") // as the advice has it
	c.Env = append(c.Environ(), servers(t)...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	close(d.work)
	require.NoError(t, waits.Get(t.Context(), nil))
	require.NoError(t, d.client.TerminateWorkflow(t.Context(), killed.GetID(), killed.GetRunID(), "a drill"))
}

// workAgain starts a worker in the place of the one that was killed.
func (d *door) workAgain(t *testing.T) {
	t.Helper()
	plugin, err := worker.NewPlugin(worker.Options{Locker: d.locker, Janitor: worker.JanitorOptions{Off: true}})
	require.NoError(t, err)
	w := sdkworker.New(d.client, d.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, DisableWorkflowWorker: true})
	w.RegisterActivity(d.Work)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// A drill: two workers of one namespace keep their locks in different collections.
func TestWorkersAtDifferentCollectionsAreFound(t *testing.T) {
	t.Parallel()
	db, queue := testenv.Mongo(t), testenv.TaskQueue(t)
	doctor := func() string {
		_, out, _ := lockstep(t, servers(t), "doctor", "--database", db.Name())
		return out
	}
	serve := func(collection string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), binary, "worker", "--database", db.Name(), "--collection", collection, "--task-queue", queue)
		c.Env = append(c.Environ(), servers(t)...)
		require.NoError(t, c.Start())
		return c
	}
	one := serve("locks")
	require.Eventually(t, func() bool { return strings.Contains(doctor(), "ok       janitor ") }, within, 500*time.Millisecond)
	require.Contains(t, doctor(), "ok       one place ")
	other := serve("more")
	var said string
	require.Eventually(t, func() bool {
		said = doctor()
		return strings.Contains(said, "broken   one place    workers of this namespace also keep locks in more")
	}, within, 500*time.Millisecond)
	require.Contains(t, said, "give all workers the same collection")

	require.NoError(t, other.Process.Signal(os.Interrupt))
	require.NoError(t, other.Wait())
	require.Eventually(t, func() bool { return strings.Contains(doctor(), "ok       one place ") }, within, 500*time.Millisecond)
	require.NoError(t, one.Process.Signal(os.Interrupt))
	require.NoError(t, one.Wait())
}

// A drill: the database is away, and comes back.
func TestADatabaseThatIsAwayIsFoundAndLocksStandAfterIt(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	holder := d.come(t, "Enter", lockcore.StateHolding)
	wire, uri := testenv.MongoByWire(t)
	env := append(servers(t), "LOCKSTEP_MONGODB_URI="+uri)
	wire.Cut()
	code, _, stderr := lockstep(t, env, append([]string{"doctor"}, d.args...)...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no database answers at ")
	wire.Mend()
	_, out, stderr := lockstep(t, env, append([]string{"doctor"}, d.args...)...)
	require.Contains(t, out, "ok       writing ", stderr)
	code, out, stderr = lockstep(t, env, append([]string{"show", "door"}, d.args...)...)
	require.Zero(t, code, stderr)
	require.Contains(t, out, holder.GetID()+" holds door (exclusive)")
	close(d.work)
	require.NoError(t, holder.Get(t.Context(), nil))
}

// beDoorKeeper serves a door if this process was started for that, and never returns then.
func beDoorKeeper() {
	said := os.Getenv(doorKeeper)
	if said == "" {
		return
	}
	database, queue, _ := strings.Cut(said, " ")
	if err := keepDoor(database, queue); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}
