package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	workerCommand = "worker" // hidden, of the worker processes
	present       = "present"
	previous      = "previous"

	// refusedWithin is the time after the policy from which on the previous build must do nothing: it decides by what it has read for
	// that long. quiet is the time for which it is watched then.
	refusedWithin, quiet = 10 * time.Second, 10 * time.Second
	// longest bounds the whole run.
	longest = 2 * time.Minute
	// sagasAtOnce is the number of sagas that run at the same time, and enough the number of each kind of event that must be seen.
	sagasAtOnce, enough = 6, 5
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rollout:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) == 5 && os.Args[1] == workerCommand {
		return runWorker(context.WithoutCancel(ctx), os.Args[2], os.Args[3], os.Args[4])
	}
	build := flag.String("previous", "", "the previous build of this program (.ci/previous)")
	lockstep := flag.String("lockstep", "", "the command lockstep of this build")
	dir := flag.String("dir", "", "where the logs go and stay (default: a temporary folder, which stays after a failure)")
	flag.Parse()
	if *build == "" || *lockstep == "" {
		return errors.New("-previous or -lockstep is missing: want the previous build of this program, as .ci/previous makes it, and the present build of the command")
	}
	logs, err := os.MkdirTemp(*dir, "rollout-")
	if err != nil {
		return err
	}
	if logs, err = filepath.Abs(logs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it did not end within %v", longest))
	defer cancel()
	if err := play(ctx, *build, *lockstep, logs); err != nil {
		return fmt.Errorf("%w (logs in %s)", err, logs)
	}
	if *dir == "" {
		return os.RemoveAll(logs)
	}
	return nil
}

// rollout is a run.
type rollout struct {
	dir, name string // of the logs; of the database and the task queue
	lockstep  string // the command
	tc        client.Client
	locker    *lockcore.Locker
	// ended counts the sagas that have ended as planned.
	ended atomic.Int64
}

func play(ctx context.Context, build, lockstep, dir string) (err error) {
	began := time.Now()
	r := &rollout{dir: dir, lockstep: lockstep, name: fmt.Sprintf("rollout_%d", began.UnixMilli())}
	mc, err := connect.Mongo(ctx, os.Getenv("LOCKSTEP_MONGODB_URI"), "lockstep rollout")
	if err != nil {
		return fmt.Errorf("LOCKSTEP_MONGODB_URI: %w", err)
	}
	defer func() { err = errors.Join(err, drop(context.WithoutCancel(ctx), mc, r.name)) }()
	output, err := os.Create(filepath.Join(r.dir, "program.output"))
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	if r.tc, err = dial(ctx, output); err != nil {
		return err
	}
	defer r.tc.Close()
	if r.locker, err = lockcore.New(mc.Database(r.name).Collection("locks"), lockcore.Config{}); err != nil {
		return err
	}
	var workers []*harness.Process
	defer func() {
		for _, w := range workers {
			w.Kill()
		}
	}()
	for _, name := range []string{previous, present} { // the previous build creates the collection
		c := harness.Command{Name: name, Args: []string{workerCommand, dir, r.name, name}, Output: filepath.Join(dir, name+".output")}
		if name == previous {
			c.Program = build
		}
		w, err := harness.Start(ctx, c)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	failed := make([]error, sagasAtOnce)
	var load sync.WaitGroup
	for thread := range sagasAtOnce {
		load.Go(func() { failed[thread] = r.sagas(ctx, loading, thread) })
	}
	if err := r.changes(ctx, workers[0]); err != nil {
		return err
	}
	stop()
	load.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := r.free(ctx); err != nil {
		return err
	}
	fmt.Printf("all %d sagas ended as planned, in %.0f s\n", r.ended.Load(), time.Since(began).Seconds())
	return nil
}

func drop(ctx context.Context, mc *mongo.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := mc.Database(name).Drop(ctx)
	return errors.Join(err, mc.Disconnect(ctx))
}

// changes sets the first policy while both builds work, and ends the previous one after it was refused.
func (r *rollout) changes(ctx context.Context, old *harness.Process) error {
	err := r.await(ctx, "both builds have run steps of the same sagas", func(all []Record) bool {
		_, before := refusals(all, previous, time.Time{})
		_, now := refusals(all, present, time.Time{})
		return before >= enough && now >= enough && sharedSagas(all) >= enough
	})
	if err != nil {
		return err
	}
	all, err := r.records()
	if err != nil {
		return err
	}
	for _, name := range []string{previous, present} {
		if refused, _ := refusals(all, name, time.Time{}); len(refused) > 0 {
			return fmt.Errorf("before the policy the %s build was refused: %s", name, refused[0].Error)
		}
	}
	fmt.Printf("before the policy: both builds ran steps of %d sagas\n", sharedSagas(all))

	before := time.Now()
	command := exec.CommandContext(ctx, r.lockstep, "limit", prefix+"*", fmt.Sprint(permits-1), "--reason", "a roll-out", "--database", r.name, "--collection", "locks") //nolint:gosec // a flag names it
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("lockstep limit: %w: %s", err, text)
	}
	set := time.Now()
	err = r.await(ctx, "the previous build is refused", func(all []Record) bool {
		refused, _ := refusals(all, previous, before)
		return len(refused) > 0
	})
	if err != nil {
		return err
	}
	ended := r.ended.Load()
	settled := set.Add(refusedWithin)
	err = r.await(ctx, "sagas end in the present build, beside the previous one", func([]Record) bool {
		return time.Now().After(settled.Add(quiet)) && r.ended.Load() >= ended+enough
	})
	if err != nil {
		return err
	}
	if all, err = r.records(); err != nil {
		return err
	}
	fmt.Printf("after the policy: %d sagas ended in the present build within %.0f s\n", r.ended.Load()-ended, time.Since(set).Seconds())
	if err := check(all, before, settled); err != nil {
		return err
	}
	return old.Quit(ttl + 2*closeWithin)
}

// check finds what must not happen after the policy, which was set after the time before, and what the previous build must not do from
// the time settled on.
func check(all []Record, before, settled time.Time) error {
	refused, _ := refusals(all, previous, before)
	var last time.Time
	lost := map[string]*Record{}
	for i := range all {
		rec := &all[i]
		if rec.What == Lost {
			lost[rec.Process] = rec
		}
		if rec.Process != previous || rec.Error != "" {
			continue
		}
		if last = rec.At; last.After(settled) {
			return fmt.Errorf("the previous build still works %.1f s after the policy: %+v", last.Sub(before).Seconds(), *rec)
		}
	}
	if lost[present] != nil {
		return fmt.Errorf("the present build has lost its lock: %s", lost[present].Error)
	}
	if lost[previous] == nil || lost[previous].At.Before(before) {
		return errors.New("the previous build has not lost its lock after the policy")
	}
	for _, rec := range refused {
		if !strings.Contains(rec.Error, "has another layout") {
			return fmt.Errorf("the previous build was refused by another error: %s", rec.Error)
		}
	}
	if wrong, _ := refusals(all, present, time.Time{}); len(wrong) > 0 {
		return fmt.Errorf("the present build was refused: %s", wrong[0].Error)
	}
	fmt.Printf("after the policy: the previous build was refused %d times, and worked for another %.1f s at most: %s\n", len(refused), last.Sub(before).Seconds(), refused[0].Error)
	fmt.Printf("the lock that it kept was lost after %.1f s: %s\n", lost[previous].At.Sub(before).Seconds(), lost[previous].Error)
	return nil
}

// refusals returns the requests of a process for its own lock after some time that failed, and the number of requests that did not.
func refusals(all []Record, process string, after time.Time) (refused []*Record, granted int) {
	for i := range all {
		switch rec := &all[i]; {
		case rec.Process != process || rec.What != Asked || rec.At.Before(after):
		case rec.Error != "":
			refused = append(refused, rec)
		default:
			granted++
		}
	}
	return refused, granted
}

// sharedSagas returns the number of sagas of which both builds have run steps.
func sharedSagas(all []Record) (n int) {
	by := map[string]string{}
	for i := range all {
		rec := &all[i]
		if rec.What != Ran {
			continue
		}
		if other := by[rec.Saga]; other == "" {
			by[rec.Saga] = rec.Process
		} else if other != rec.Process && other != "both" {
			by[rec.Saga] = "both"
			n++
		}
	}
	return n
}

func (r *rollout) records() ([]Record, error) {
	return harness.ReadLogs(r.dir, func(rec *Record) int64 { return rec.At.UnixNano() })
}

// await waits until the logs show something.
func (r *rollout) await(ctx context.Context, what string, shows func([]Record) bool) error {
	for harness.Pause(ctx, 200*time.Millisecond) {
		if all, err := r.records(); err != nil || shows(all) {
			return err
		}
	}
	return fmt.Errorf("%w, while it waited until %s", context.Cause(ctx), what)
}

// sagas runs one saga after the other until the load ends. Each must end as planned.
func (r *rollout) sagas(ctx, loading context.Context, thread int) error {
	for number := thread; loading.Err() == nil; number += sagasAtOnce {
		id := fmt.Sprintf("%s-%d", r.name, number)
		fails := number%4 == 3
		w, err := r.tc.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: r.name, WorkflowExecutionTimeout: longest}, sagaName, Saga{Number: number, Fails: fails})
		if err == nil {
			err = w.Get(ctx, nil)
		}
		if planned := err != nil && strings.Contains(err.Error(), errPlanned.Error()); planned != fails || err != nil && !planned {
			return fmt.Errorf("saga %s, which is planned to fail: %t: %w", id, fails, err)
		}
		r.ended.Add(1)
	}
	return nil
}

// free waits until no lock of a saga or of the previous build is left. What that held ends with its TTL.
func (r *rollout) free(ctx context.Context) error {
	var left []string
	for range 50 {
		left = nil
		for s, err := range r.locker.Status(ctx, lockcore.Filter{}) {
			if err != nil {
				return err
			}
			if ofProcess := strings.HasPrefix(s.Resource, "own/") || strings.HasPrefix(s.Resource, "kept/") || strings.HasPrefix(s.Resource, "lockstep."); s.ExpiresIn > 0 && (!ofProcess || s.Host != present) {
				left = append(left, s.String())
			}
		}
		if len(left) == 0 {
			return nil
		}
		if !harness.Pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	slices.Sort(left)
	return fmt.Errorf("these locks are left: %s", strings.Join(left, "; "))
}
