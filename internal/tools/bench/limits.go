package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

const (
	limitsResource = "partner/acme"
	// limitsOwn is the limit for which the workflows ask.
	limitsOwn = 3
	// followWithin is the time within which a change must act.
	followWithin, stepLasts = 10 * time.Second, 3 * time.Second
)

// limitChanges are the changes of the operator: each limit is set after some time, and ends after another unless that is 0. A limit of 0
// removes the policy.
var limitChanges = []struct {
	after time.Duration
	limit int
	lasts time.Duration
}{{12 * time.Second, 10, 0}, {20 * time.Second, 2, 0}, {20 * time.Second, 6, 20 * time.Second}, {35 * time.Second, 5, 0}, {12 * time.Second, 0, 0}}

// limitsBench changes the limit of a semaphore for which workflows wait. Its JSON is the report.
type limitsBench struct {
	workflows int
	locker    *lockcore.Locker
	steps     atomic.Int64
	began     time.Time
	// queue lists the lock IDs that waited when all had asked, in order.
	queue []string

	Rows    []*limitsRow    `json:"rows"`
	Changes []*limitsChange `json:"changes"`
	Ended   int             `json:"ended"`
}

// limitsRow is a read of the document after grants: the limit that was set, how many hold or were granted the semaphore, how many wait, and
// how many have left the queue since the read before.
type limitsRow struct {
	At      time.Duration `json:"at"`
	Limit   int           `json:"limit"`
	In      int           `json:"in"`
	Waiting int           `json:"waiting"`
	Granted int           `json:"granted"`
}

// limitsChange is a change of the limit. ActsAfter is the time until more were in than could be before, or until the last one was granted
// the semaphore beyond the limit; 0 if none was.
type limitsChange struct {
	At        time.Duration `json:"at"`
	Limit     int           `json:"limit"`
	ActsAfter time.Duration `json:"actsAfter"`
}

func runLimits(ctx context.Context, args []string) error {
	b := &limitsBench{}
	flags := flag.NewFlagSet("bench limits", flag.ExitOnError)
	flags.IntVar(&b.workflows, "workflows", 200, "how many workflows wait")
	asJSON := parseFlags(flags, args)
	s, drop, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer drop()
	var last *station
	for range 2 { // workers
		if last, err = s.open(sdkworker.Options{MaxConcurrentActivityExecutionSize: hotSlots}); err != nil {
			return err
		}
		last.RegisterWorkflowWithOptions(limitsOne, workflow.RegisterOptions{Name: "LimitsOne"})
		last.RegisterActivityWithOptions(b.step, activity.RegisterOptions{Name: "Step"})
		if err := last.Start(); err != nil {
			return err
		}
		defer last.Stop()
	}
	if b.locker, err = lockcore.New(last.db.Collection("locks"), lockcore.Config{}); err != nil {
		return err
	}
	var runs []client.WorkflowRun
	for range b.workflows {
		run, err := last.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: s.Queue}, "LimitsOne")
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	if err := b.play(ctx); err != nil {
		return err
	}
	for _, run := range runs {
		if err := run.Get(ctx, nil); err != nil {
			return err
		}
		b.Ended++
	}
	if err := write(b, asJSON); err != nil {
		return err
	}
	for _, c := range b.Changes {
		if c.ActsAfter > followWithin {
			return fmt.Errorf("the limit %d, set after %v, acted after %v only", c.Limit, c.At, c.ActsAfter)
		}
	}
	if steps := b.steps.Load(); steps != int64(b.workflows) {
		return fmt.Errorf("%d steps ran in %d workflows", steps, b.workflows)
	}
	return nil
}

// limitsOne is a workflow of one step under the semaphore.
func limitsOne(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	return workflow.ExecuteActivity(workflows.Guard(ctx, lockcore.SharedLimit(limitsResource, limitsOwn)), "Step").Get(ctx, nil)
}

func (b *limitsBench) step(ctx context.Context) error {
	b.steps.Add(1)
	return measure.Pause(ctx, stepLasts)
}

// play waits until all workflows have asked, and then changes the limit and reads what happens, until none waits.
func (b *limitsBench) play(ctx context.Context) error {
	b.Changes = []*limitsChange{{Limit: limitsOwn}}
	next, changed := 0, time.Duration(0)
	for waiting := -1; waiting != 0; {
		begun := int(b.steps.Load()) // of which none waits or has a claim later
		in, claims, queue, err := b.read(ctx)
		if err != nil {
			return err
		}
		switch {
		case b.queue != nil:
			if len(queue) > len(b.queue) || !slices.Equal(queue, b.queue[len(b.queue)-len(queue):]) {
				return fmt.Errorf("the queue is not the end of what it was, so a waiter was passed or lost:\n%v\n%v", queue, b.queue)
			}
			b.record(in, len(queue), waiting-len(queue))
			waiting = len(queue)
		case begun+claims+len(queue) >= b.workflows:
			b.queue, b.began, waiting = queue, time.Now(), len(queue)
		}
		if since := time.Since(b.began); b.queue != nil && next < len(limitChanges) && since >= changed+limitChanges[next].after {
			if err := b.change(ctx, next, since); err != nil {
				return err
			}
			next, changed = next+1, since
		}
		if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if next < len(limitChanges) {
		return fmt.Errorf("no workflow waited any longer after %d of %d changes: use more workflows", next, len(limitChanges))
	}
	return nil
}

// read returns how many hold or were granted the semaphore, how many of them have claims, and the lock IDs that wait.
func (b *limitsBench) read(ctx context.Context) (in, claims int, queue []string, err error) {
	for st, err := range b.locker.Status(ctx, lockcore.Filter{Resource: limitsResource}) {
		switch {
		case err != nil:
			return 0, 0, nil, err
		case st.State == lockcore.StateWaiting:
			queue = append(queue, st.LockID)
		case st.ExpiresIn > 0:
			if in++; st.State == lockcore.StateClaimed {
				claims++
			}
		}
	}
	return in, claims, queue, nil
}

// record records a read after which some have been granted the semaphore.
func (b *limitsBench) record(in, waiting, granted int) {
	if granted == 0 {
		return
	}
	at := time.Since(b.began)
	var now *limitsChange
	before := limitsOwn
	for i, c := range b.Changes {
		if c.At > at {
			break
		}
		if now = c; i > 0 {
			before = b.Changes[i-1].Limit
		}
	}
	raised := now.Limit > before && in > before && now.ActsAfter == 0
	if beyond := now.Limit < before && in > now.Limit; raised || beyond {
		now.ActsAfter = at - now.At
	}
	b.Rows = append(b.Rows, &limitsRow{at, now.Limit, in, waiting, granted})
}

// change carries out a change of the limit.
func (b *limitsBench) change(ctx context.Context, n int, at time.Duration) error {
	c := limitChanges[n]
	p := lockcore.Policy{Name: limitsResource, Limit: c.limit}
	b.Changes = append(b.Changes, &limitsChange{At: at, Limit: cmp.Or(c.limit, limitsOwn)})
	if c.lasts > 0 {
		p.Until = time.Now().Add(c.lasts)
		b.Changes = append(b.Changes, &limitsChange{At: at + c.lasts, Limit: limitsOwn})
	}
	if c.limit == 0 {
		return b.locker.RemovePolicy(ctx, p)
	}
	return b.locker.SetPolicy(ctx, p)
}

func (b *limitsBench) print(w io.Writer) {
	fmt.Fprintf(w, "%d of %d workflows have ended; %d waited at the beginning, and left the queue in its order\n\n", b.Ended, b.workflows, len(b.queue))
	fmt.Fprintln(w, "limit\tset after\tacts after\t")
	for _, c := range b.Changes {
		fmt.Fprintf(w, "%d\t%.1f s\t%.1f s\t\n", c.Limit, c.At.Seconds(), c.ActsAfter.Seconds())
	}
	fmt.Fprintln(w, "\nafter\tlimit\tin\twaiting\tgranted\t")
	for _, r := range b.Rows {
		fmt.Fprintf(w, "%.1f s\t%d\t%d\t%d\t%d\t\n", r.At.Seconds(), r.Limit, r.In, r.Waiting, r.Granted)
	}
}
