package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	apps   = 50
	broken = "phone-2"
	// The lines of the worker process.
	readyLine = "ready"
	hangsLine = "hangs in the test of"
	// longest bounds a run. It takes about half a minute.
	longest = 4 * time.Minute
)

var phones = []string{"phone-1", "phone-2", "phone-3", "phone-4", "phone-5"}

// run makes the pool, takes a phone out of service, and lets all workflows queue. Then it gives them the other phones, kills a worker,
// and brings the phone back. It prints the uses of the phones, and returns an error if one is not right.
func run(ctx context.Context, at site, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	p, err := at.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.db.Drop(context.WithoutCancel(ctx)), p.close(ctx)) }()
	if err := p.makePool(ctx); err != nil {
		return err
	}
	technicians, err := p.holdFreePhones(ctx)
	if err != nil {
		return err
	}
	if err := p.worker.Start(); err != nil {
		return err
	}
	defer p.worker.Stop()
	second, err := at.startWorker(ctx)
	if err != nil {
		return err
	}
	defer second.kill()
	runs, err := p.startApps(ctx, at.queue)
	if err != nil {
		return err
	}
	for _, session := range technicians {
		if err := session.Release(ctx); err != nil {
			return err
		}
	}
	o := observed{wait: names(apps)}
	if err := p.observe(ctx, &o, second, ended(ctx, runs)); err != nil {
		return err
	}
	found, err := p.uses(ctx)
	if err != nil {
		return err
	}
	return errors.Join(printBookings(out, found, o.killed), check(found, o.broughtBack, o.killed))
}

// makePool makes the pool of five phones, and takes one out of service.
func (p *process) makePool(ctx context.Context) error {
	for _, phone := range phones {
		if _, err := p.db.Collection("phones").InsertOne(ctx, Phone{Name: phone, Uses: []Use{}}); err != nil {
			return err
		}
	}
	if err := p.locker.SetPolicy(ctx, lockcore.Policy{Name: "phones", Members: phones, By: "ann", Reason: "the lab opens"}); err != nil {
		return err
	}
	return p.locker.EditPolicy(ctx, lockcore.Policy{Name: "phones", By: "ann", Reason: "repair"}, func(pool *lockcore.Policy) error {
		pool.Out = map[string]string{broken: "display broken"}
		return nil
	})
}

// bringBack takes the phone back into service.
func (p *process) bringBack(ctx context.Context) error {
	return p.locker.EditPolicy(ctx, lockcore.Policy{Name: "phones", By: "ann", Reason: "new display"}, func(pool *lockcore.Policy) error {
		delete(pool.Out, broken)
		return nil
	})
}

// holdFreePhones books all phones that are in service, without Temporal.
func (p *process) holdFreePhones(ctx context.Context) (held []*lockcore.Session, err error) {
	for i := range len(phones) - 1 {
		session, err := p.locker.Acquire(ctx, lockcore.Request{
			LockID: fmt.Sprint("technician-", i), Resources: []lockcore.Resource{lockcore.Pool("phones")}, MaxWait: time.Minute,
		})
		if err != nil {
			return nil, err
		}
		if phone := session.Leases()[0].Member; phone == broken {
			return nil, fmt.Errorf("%s was granted although it is out of service", phone)
		}
		held = append(held, session)
	}
	return held, nil
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("app-%02d", i+1))
	}
	return out
}

// startApps starts the workflows, each after the one before has queued, so that the order of their arrival is that of their names.
// The test of each tenth app fails.
func (p *process) startApps(ctx context.Context, queue string) (runs []client.WorkflowRun, err error) {
	for i, name := range names(apps) {
		run, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name + "." + queue, TaskQueue: queue}, TestApp, App{Name: name, Crashes: i%10 == 4})
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
		var waiting []string
		for len(waiting) <= i {
			if waiting, _, err = p.waiting(ctx); err != nil {
				return nil, err
			}
		}
		if !slices.Equal(waiting, names(i+1)) {
			return nil, fmt.Errorf("%s has queued, and the queue is %v: want the order of arrival", name, waiting)
		}
	}
	return runs, nil
}

// waiting returns the apps that wait for a phone, in the order of the queue, and the greatest fence of the phones in use.
func (p *process) waiting(ctx context.Context) (apps []string, fence int64, err error) {
	for s, err := range p.locker.Status(ctx, lockcore.Filter{Resource: "phones"}) {
		if err != nil {
			return nil, 0, err
		}
		if fence = max(fence, s.Fence); s.State == lockcore.StateWaiting {
			_, workflowID, _ := strings.Cut(s.Owner, "/") // after the namespace
			app, _, _ := strings.Cut(workflowID, ".")
			apps = append(apps, app)
		}
	}
	return apps, fence, nil
}

// ended returns a channel that receives nil, or an error, when all workflows have ended.
func ended(ctx context.Context, runs []client.WorkflowRun) <-chan error {
	all := make(chan error, 1)
	go func() {
		for _, run := range runs {
			err := run.Get(ctx, nil)
			var failure *temporal.ApplicationError
			if err != nil && (!errors.As(err, &failure) || failure.Type() != failureCrashed) {
				all <- err
				return
			}
		}
		all <- nil
	}()
	return all
}

// observed has what was seen while the workflows ran.
type observed struct {
	// wait has the apps that never had a phone, in the order of their arrival.
	wait []string
	// broughtBack is a fence from before the broken phone came back into service, and killed the app during whose test a worker was
	// killed.
	broughtBack int64
	killed      string
}

// observe looks at the queue until all workflows have ended. It kills the second worker when that hangs, and brings the broken phone
// back when half of the workflows have got a phone.
func (p *process) observe(ctx context.Context, o *observed, second *workerProcess, all <-chan error) error {
	for {
		select {
		case err := <-all:
			if err == nil && (o.killed == "" || o.broughtBack == 0) {
				err = fmt.Errorf("killed during %q, phone back at fence %d: want both to happen before the last workflow ends", o.killed, o.broughtBack)
			}
			return err
		case line := <-second.lines:
			second.kill()
			o.killed = strings.Fields(strings.TrimPrefix(line, hangsLine))[0]
		case <-time.After(20 * time.Millisecond):
		}
		waiting, fence, err := p.waiting(ctx)
		if err != nil {
			return err
		}
		if err := o.next(waiting); err != nil {
			return err
		}
		if o.broughtBack == 0 && len(o.wait) <= apps/2 {
			o.broughtBack = fence
			if err := p.bringBack(ctx); err != nil {
				return err
			}
		}
	}
}

// next compares the queue with the apps that never had a phone: grants come in the order of arrival, so the apps that have left the queue
// came first. A waiter that has missed its grant, because its worker was killed, is back in the queue and is no longer compared.
func (o *observed) next(waiting []string) error {
	for len(o.wait) > 0 && !slices.Contains(waiting, o.wait[0]) {
		o.wait = o.wait[1:]
	}
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(app string) bool { return !slices.Contains(o.wait, app) })
	if !slices.Equal(waiting, o.wait) {
		return fmt.Errorf("the queue is %v, and %v came in this order: a later one was granted first", waiting, o.wait)
	}
	return nil
}

// workerProcess is the second worker, in a process of its own.
type workerProcess struct {
	kill func()
	// lines has the line that it writes when it hangs.
	lines <-chan string
}

// startWorker starts this program once more, as a worker, and waits until it works.
func (s site) startWorker(ctx context.Context) (*workerProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, self, s.temporal, s.mongo, s.database, s.queue) //nolint:gosec // this program itself
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	ready, lines := make(chan struct{}), make(chan string, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			switch line := scanner.Text(); {
			case line == readyLine:
				close(ready)
			case strings.HasPrefix(line, hangsLine):
				lines <- line
			}
		}
		_ = cmd.Wait() // it was killed
	}()
	w := &workerProcess{lines: lines, kill: func() {
		cancel() // sends SIGKILL
		<-gone
	}}
	select {
	case <-ready:
		return w, nil
	case <-gone:
		return nil, errors.New("the worker process has ended before it was ready")
	case <-ctx.Done():
		w.kill()
		return nil, context.Cause(ctx)
	}
}
