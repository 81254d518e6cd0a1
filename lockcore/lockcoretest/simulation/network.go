package simulation

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// What the database answers if it does not do what it was asked for: that it is unknown, and that nothing was done.
var (
	errReset   = errors.New("simulated: connection reset")
	errRefused = mongo.CommandError{Code: 189, Name: "PrimarySteppedDown", Message: "simulated: refused", Labels: []string{"RetryableWriteError"}}
	errInvalid = mongo.CommandError{Code: 121, Name: "DocumentValidationFailure", Message: "simulated: this document cannot be written"}
	errAway    = topology.ServerSelectionError{Wrapped: errors.New("simulated: no server")}
)

// command is one on its way to the database.
type command struct {
	p         *process
	kind      string
	resources []string
	lockID    string
	// op is the operation as the engine takes it.
	op any
	// call is the caller's, if it is known, and sent when the command was first sent.
	call *call
	sent time.Time
	// copy counts how often it was applied before.
	copy int
	run  func() ([]rules.Document, []bool, error)
}

// fate is what becomes of a command.
type fate struct {
	there, back time.Duration
	// refused is an error instead of the effect, lost one instead of the answer.
	refused, lost error
	// again is after what time a copy of the command is applied, if its sender gets no answer; 0 is never.
	again time.Duration
	// arrives says that it takes effect though its sender gave up while it was on its way.
	arrives bool
}

// fateOf follows from the seed, and from the how manieth command of its kind this is.
func (p *process) fateOf(c *command) fate {
	p.mu.Lock()
	key := c.kind + "/" + c.resources[0] + "/" + c.lockID
	p.sent[key]++
	n := p.sent[key]
	p.mu.Unlock()
	d := newDice(draw(p.w.seed, key, uint64(p.n), n)) //nolint:gosec // a few processes
	f := fate{there: d.between(200*time.Microsecond, 4*time.Millisecond), back: d.between(200*time.Microsecond, 4*time.Millisecond), arrives: d.chance(0.5)}
	if p.w.calm() {
		return f
	}
	pl := p.w.plan
	slow, lost, refused, again := d.chance(pl.slow), d.chance(pl.lost), d.chance(pl.refused), d.chance(pl.again)
	long, late := d.between(50*time.Millisecond, 8*time.Second), d.between(time.Second, 100*time.Second)
	if d.chance(0.6) { // it is granted if no record stands any more of what it asked for
		late = d.between(100*time.Millisecond, rules.CommandTimeout)
	}
	switch {
	case slow && d.chance(0.5):
		f.there = long
	case slow:
		f.back = long
	case lost:
		f.lost = errReset
		if d.chance(pl.breaks) {
			p.w.cutOff(p, f.there+f.back, d.between(500*time.Millisecond, 12*time.Second))
		}
	case refused:
		f.refused = errRefused
	}
	if again && f.refused == nil {
		f.again = late
	}
	if slow || lost || refused {
		p.suffer(trouble{from: c.sent, to: c.sent.Add(f.there + f.back), single: true})
	}
	return f
}

// send takes a command to the database, and its answer back.
func (p *process) send(ctx context.Context, c *command) ([]rules.Document, []bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c.p, c.sent = p, time.Now()
	if op, ok := c.op.(rules.Leave); ok {
		p.w.excuse(entryKey{partKey{op.Resource, op.LockID, op.Part}, op.Order})
	}
	c.call, _ = ctx.Value(callKey{}).(*call)
	p.countCommand(c)
	f := p.fateOf(c)
	key := draw(p.w.seed, c.kind, uint64(f.there)) //nolint:gosec // not negative
	p.pass(key)
	if !pause(ctx, f.there) {
		if f.arrives {
			time.AfterFunc(f.there, func() { _, _, _ = p.w.apply(c) })
		}
		p.pass(key)
		return nil, nil, ctx.Err()
	}
	if f.refused == nil {
		f.refused = p.w.away(ctx, p, key)
	}
	if f.refused != nil {
		p.w.note(p.name, c.about(), "%s: %v", c, f.refused)
		p.pass(key)
		return nil, nil, f.refused
	}
	docs, renewed, err := p.carriedOut(ctx, c)
	if !pause(ctx, f.back) {
		p.lose(c)
		p.repeat(c, f)
		p.pass(key)
		return nil, nil, ctx.Err()
	}
	if f.lost == nil {
		f.lost = p.w.away(ctx, p, key)
	}
	if f.lost != nil && err == nil {
		p.w.note(p.name, c.about(), "%s: answer lost", c)
		p.lose(c)
		p.repeat(c, f)
		err = errReset
		docs, renewed = nil, nil
	}
	p.pass(key)
	if c.call != nil && err == nil && c.kind == "acquire" {
		p.w.mu.Lock() // a commit asks about several resources at once
		c.call.queued = docs[0].Last.Outcome == rules.Queued
		p.w.mu.Unlock()
	}
	return docs, renewed, err
}

// lose takes down that the sender of a request does not know what became of it.
func (p *process) lose(c *command) {
	var ops []rules.Acquire
	switch op := c.op.(type) {
	case rules.Acquire:
		ops = append(ops, op)
	case []rules.Acquire:
		ops = op
	}
	for _, op := range ops {
		p.w.excuse(entryKey{partKey{op.Resource, op.LockID, op.Part}, op.Order})
	}
}

// carriedOut lets a command take effect. One of several steps goes on when its sender has given up.
func (p *process) carriedOut(ctx context.Context, c *command) ([]rules.Document, []bool, error) {
	if c.kind != "acquireAll" {
		return p.w.apply(c)
	}
	type answer struct {
		docs []rules.Document
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		docs, _, err := p.w.apply(c)
		done <- answer{docs, err}
	}()
	select {
	case a := <-done:
		return a.docs, nil, a.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// repeat lets a copy of a command take effect later, whose sender got no answer: it knows, and a party that gave up leaves again
// when no copy can come any more. No command is repeated whose answer came: a driver does not send it again, and a server
// knows its own repetition.
func (p *process) repeat(c *command, f fate) {
	if f.again > 0 {
		time.AfterFunc(f.again, func() { _, _, _ = p.w.apply(c) })
	}
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// one sends a command about one document.
func (p *process) one(ctx context.Context, kind, resource, lockID string, op any, run func() (rules.Document, error)) (rules.Document, error) {
	docs, _, err := p.send(ctx, &command{kind: kind, resources: []string{resource}, lockID: lockID, op: op, run: func() ([]rules.Document, []bool, error) {
		d, err := run()
		return []rules.Document{d}, nil, err
	}})
	if err != nil {
		return rules.Document{}, err
	}
	return docs[0], nil
}

// The engine that the process's Locker works on.

func (p *process) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	return p.one(ctx, "acquire", op.Resource, op.LockID, op, func() (rules.Document, error) { return p.w.db.Acquire(forDB, op) })
}

// AcquireAll is one command that the database carries out in as many steps, between which time may pass.
func (p *process) AcquireAll(ctx context.Context, ops []rules.Acquire) ([]rules.Document, error) {
	c := &command{kind: "acquireAll", lockID: ops[0].LockID, op: ops}
	for _, op := range ops {
		c.resources = append(c.resources, op.Resource)
	}
	c.run = func() ([]rules.Document, []bool, error) {
		steps := newDice(draw(p.w.seed, c.kind, uint64(p.n), uint64(c.copy), uint64(ops[0].Order))) //nolint:gosec // not negative
		granted := []rules.Document{}
		for _, op := range ops {
			if len(granted) > 0 && !p.w.calm() && steps.chance(p.w.plan.slow) {
				slow := steps.between(time.Millisecond, 8*time.Second)
				p.suffer(trouble{from: time.Now(), to: time.Now().Add(slow), single: true})
				pause(forDB, slow)
			}
			one := &command{p: p, kind: "acquire", resources: []string{op.Resource}, lockID: op.LockID, op: op, call: c.call, sent: c.sent, copy: c.copy}
			one.run = func() ([]rules.Document, []bool, error) {
				docs, err := p.w.db.AcquireAll(forDB, []rules.Acquire{op})
				return docs, nil, err
			}
			docs, _, _ := p.w.apply(one) // what cannot be written says so when it is asked for alone
			if len(docs) == 0 {
				break
			}
			granted = append(granted, docs[0])
		}
		c.copy++
		return granted, nil, nil
	}
	docs, _, err := p.send(ctx, c)
	return docs, err
}

func (p *process) Renew(ctx context.Context, op rules.Renew) (rules.Document, error) {
	return p.one(ctx, "renew", op.Resource, op.LockID, op, func() (rules.Document, error) { return p.w.db.Renew(forDB, op) })
}

func (p *process) Leave(ctx context.Context, op rules.Leave) (rules.Document, error) {
	return p.one(ctx, "leave", op.Resource, op.LockID, op, func() (rules.Document, error) { return p.w.db.Leave(forDB, op) })
}

func (p *process) Release(ctx context.Context, op rules.Release) (rules.Document, error) {
	return p.one(ctx, "release", op.Resource, op.LockID, op, func() (rules.Document, error) { return p.w.db.Release(forDB, op) })
}

func (p *process) Withdraw(ctx context.Context, op rules.Withdraw) (rules.Document, error) {
	return p.one(ctx, "withdraw", op.Resource, op.LockID, op, func() (rules.Document, error) { return p.w.db.Withdraw(forDB, op) })
}

// RenewAll is one command for several documents. What comes before a document that cannot be written was written.
func (p *process) RenewAll(ctx context.Context, ops []rules.Renew) ([]bool, error) {
	c := &command{kind: "renewAll", op: ops}
	for _, op := range ops {
		if !slices.Contains(c.resources, op.Resource) {
			c.resources = append(c.resources, op.Resource)
		}
	}
	slices.Sort(c.resources)
	c.run = func() ([]rules.Document, []bool, error) {
		good := slices.DeleteFunc(slices.Clone(ops), func(op rules.Renew) bool { return p.w.unwritable(op.Resource) })
		renewed, err := p.w.db.RenewAll(forDB, good)
		if len(good) < len(ops) {
			return nil, nil, errInvalid
		}
		return nil, renewed, err
	}
	_, renewed, err := p.send(ctx, c)
	return renewed, err
}

// Read answers with what is stored.
func (p *process) Read(ctx context.Context, resources ...string) ([]rules.Document, error) {
	resources = slices.Sorted(slices.Values(resources))
	c := &command{kind: "read", resources: resources, run: func() ([]rules.Document, []bool, error) {
		docs, err := p.w.db.Read(forDB, resources...)
		return docs, nil, err
	}}
	docs, _, err := p.send(ctx, c)
	return docs, err
}

// List reads one document after the other.
func (p *process) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		names := p.w.plan.resources
		if q.Resource != "" {
			names = []string{q.Resource}
		}
		for _, name := range names {
			docs, err := p.Read(ctx, name)
			if err != nil {
				yield(rules.Document{}, err)
				return
			}
			if len(docs) == 1 && !yield(docs[0], nil) {
				return
			}
		}
	}
}

// Identify answers with the server's time. A copy may run after this has returned, so the answer comes as a document does.
func (p *process) Identify(ctx context.Context) (rules.Identity, error) {
	docs, _, err := p.send(ctx, &command{kind: "identify", resources: []string{""}, run: func() ([]rules.Document, []bool, error) {
		id, err := p.w.db.Identify(forDB)
		return []rules.Document{{ID: id.ID, At: id.At}}, nil, err
	}})
	if err != nil {
		return rules.Identity{}, err
	}
	return rules.Identity{ID: docs[0].ID, Version: rules.LayoutVersion, At: docs[0].At}, nil
}

// Prepare has nothing to make.
func (p *process) Prepare(context.Context) error { return nil }

// forDB is what commands run under that have arrived: their senders may have given up.
var forDB = context.Background()
