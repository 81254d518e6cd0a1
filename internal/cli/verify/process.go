package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
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
	*harness.Process
	number int
	// tries numbers the unknown outcomes by resource.
	tries map[string]uint16
	// disturbed is set if a check disturbs its connections, so that an operation that fails for a minute is an observation.
	disturbed bool
}

// start starts a client process and waits until it is connected.
func (r *run) start(ctx context.Context, number int, seed uint64) (*process, error) {
	c := r.o.Client
	// It is silent because the setup, which it answers first, contains the URI: that must not be an argument.
	c.Name, c.Stderr, c.Silent = fmt.Sprintf("client process %d", number), r.o.Err, true
	started, err := harness.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &process{Process: started, number: number, tries: map[string]uint16{}}
	s := setup{
		URI: r.o.URI, Database: r.coll.Database().Name(), Collection: r.coll.Name(), Client: number, Seed: seed + uint64(number), //nolint:gosec // it is small
		Control: r.o.Control,
	}
	a, err := p.exchange(ctx, s, starting)
	if err == nil && !a.OK {
		err = errors.New(a.Text)
	}
	if err != nil {
		p.Kill()
		return nil, fmt.Errorf("client process %d did not start: %w", number, err)
	}
	return p, nil
}

// exchange writes a line and reads the answer.
func (p *process) exchange(ctx context.Context, line fmt.Stringer, within time.Duration) (a answer, err error) {
	text, err := json.Marshal(line)
	if err != nil {
		return a, err
	}
	if err := p.Say(string(text)); err != nil {
		return a, err
	}
	late := fmt.Errorf("client process %d has not answered %s within %s", p.number, line, within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	answered, err := p.Line(ctx)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal([]byte(answered), &a)
}

// do sends an order. The times are those of the call and of the answer.
func (p *process) do(ctx context.Context, o order) (a answer, from, to time.Time, err error) {
	from = time.Now()
	a, err = p.exchange(ctx, o, o.Within+answering)
	return a, from, time.Now(), err
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

// clients starts n client processes and returns a function that ends them.
func (r *run) clients(ctx context.Context, n int, seed uint64) (started []*process, stop func(), err error) {
	started = make([]*process, n)
	errs := make([]error, n)
	harness.InParallel(n, func(i int) { started[i], errs[i] = r.start(ctx, i, seed) })
	stop = func() {
		harness.InParallel(n, func(i int) {
			switch {
			case started[i] == nil:
			case ctx.Err() != nil:
				started[i].Kill()
			default:
				_ = started[i].Quit(closing + 5*time.Second) // its standard error has the reason
			}
		})
	}
	if err := errors.Join(errs...); err != nil {
		stop()
		return nil, nil, err
	}
	return started, stop, nil
}
