package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/child"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

const (
	// starting bounds the time to start a client process.
	starting = 2 * time.Minute
	// answering bounds the answer to an order, in addition to the time that the order itself has.
	answering = worksAgain + 30*time.Second
)

// process is a client process, as the command sees it. One goroutine at a time uses it.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan reply
	done   chan struct{} // closed when it has ended
	// tries numbers the unknown outcomes by resource.
	tries map[string]uint16
	// disturbed is set if a check disturbs its connections, so that an operation that fails for a minute is an observation.
	disturbed bool
}

// reply is a line of a process, or the end of its output.
type reply struct {
	answer answer
	at     time.Time
	err    error
}

// start starts a client process and waits until it is connected.
func (r *run) start(ctx context.Context, number int, seed uint64) (*process, error) {
	cmd := r.o.Client()
	cmd.SysProcAttr = child.Attributes()
	cmd.Stderr = r.o.Err
	cmd.WaitDelay = time.Second
	p := &process{number: number, cmd: cmd, lines: make(chan reply, 1), done: make(chan struct{}), tries: map[string]uint16{}}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a client process: %w", err)
	}
	go p.read(stdout)
	s := setup{
		URI: r.o.URI, Database: r.coll.Database().Name(), Collection: r.coll.Name(), Client: number, Seed: seed + uint64(number), //nolint:gosec // it is small
		Control: r.o.Control,
	}
	a, err := p.exchange(ctx, s, starting)
	if err == nil && !a.answer.OK {
		err = errors.New(a.answer.Text)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("client process %d did not start: %w", number, err)
	}
	return p, nil
}

func (p *process) read(stdout io.Reader) {
	d := json.NewDecoder(stdout)
	for {
		var a answer
		if err := d.Decode(&a); err != nil {
			p.lines <- reply{err: fmt.Errorf("client process %d has ended: %w", p.number, err)}
			break
		}
		p.lines <- reply{answer: a, at: time.Now()}
	}
	_ = p.cmd.Wait() // its standard error has the reason
	close(p.done)
}

// exchange writes a line and reads the answer.
func (p *process) exchange(ctx context.Context, line fmt.Stringer, within time.Duration) (reply, error) {
	if err := json.NewEncoder(p.stdin).Encode(line); err != nil {
		return reply{}, fmt.Errorf("write to client process %d: %w", p.number, err)
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case a := <-p.lines:
		return a, a.err
	case <-timeout.C:
		return reply{}, fmt.Errorf("client process %d has not answered %s within %s", p.number, line, within)
	case <-ctx.Done():
		return reply{}, context.Cause(ctx)
	}
}

// do sends an order. The times are those of the call and of the answer.
func (p *process) do(ctx context.Context, o order) (a answer, from, to time.Time, err error) {
	from = time.Now()
	r, err := p.exchange(ctx, o, o.Within+answering)
	return r.answer, from, r.at, err
}

// perform performs an operation of a history. After an unknown outcome it also settles it.
func (p *process) perform(ctx context.Context, r *run, o order) ([]linear.Operation, error) {
	a, from, to, err := p.do(ctx, o)
	if err != nil {
		return nil, err
	}
	r.operations.Add(1)
	op := linear.Operation{
		Do: o.Do, Resource: o.Resource, Client: p.number, OK: a.OK, Fence: a.Fence, From: from.Sub(r.began), To: to.Sub(r.began),
	}
	switch {
	case !a.Failed:
		return []linear.Operation{op}, nil
	case o.Do == linear.Renew:
		return nil, nil
	case !o.Do.Takes() && !p.disturbed:
		return nil, fmt.Errorf("client %d did not carry out %q on %s: %s", p.number, o.Do, o.Resource, a.Text)
	case !o.Do.Takes():
		if _, err := r.store.LoadMajority(ctx); err != nil { // an outage
			return nil, err
		}
		return nil, &violation{fmt.Sprintf("client %d did not carry out %q on %s: %s", p.number, o.Do, o.Resource, a.Text)}
	}
	p.tries[o.Resource]++
	settled, err := p.perform(ctx, r, order{Do: linear.Settle, Resource: o.Resource})
	if err != nil {
		return nil, err
	}
	op.Unknown, op.Try, op.To = true, p.tries[o.Resource], settled[0].To
	settled[0].Try = op.Try
	return append(settled, op), nil
}

// violation is an error that is an observation of a check, and not a failure to make it.
type violation struct{ seen string }

func (v *violation) Error() string { return v.seen }

// kill ends a process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.drain()
}

// stop asks a process to end, and kills it if it does not.
func (p *process) stop() {
	_ = p.stdin.Close() // it may have ended
	timeout := time.AfterFunc(closing+5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timeout.Stop()
	p.drain()
}

// drain waits until the process has ended.
func (p *process) drain() {
	for {
		select {
		case <-p.lines:
		case <-p.done:
			return
		}
	}
}

// clients starts n client processes and returns a function that ends them.
func (r *run) clients(ctx context.Context, n int, seed uint64) (started []*process, stop func(), err error) {
	started = make([]*process, n)
	errs := make([]error, n)
	inParallel(n, func(i int) { started[i], errs[i] = r.start(ctx, i, seed) })
	stop = func() {
		inParallel(n, func(i int) {
			switch {
			case started[i] == nil:
			case ctx.Err() != nil:
				started[i].kill()
			default:
				started[i].stop()
			}
		})
	}
	if err := errors.Join(errs...); err != nil {
		stop()
		return nil, nil, err
	}
	return started, stop, nil
}

// inParallel calls do with 0 to n-1 at the same time.
func inParallel(n int, do func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}
