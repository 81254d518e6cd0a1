package simulation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Errors of the database. After errReset and errRefused the outcome is unknown; errAway proves that
// nothing was sent; errInvalid is the answer for a document that cannot be written.
var (
	errReset   = errors.New("simulated: connection reset")
	errRefused = mongo.CommandError{Code: 189, Name: "PrimarySteppedDown", Message: "simulated: refused"}
	errDeposed = errors.New("simulated: a deposed primary, write concern timed out")
	errInvalid = mongo.CommandError{Code: 121, Name: "DocumentValidationFailure", Message: "simulated: cannot be written"}
	errAway    = fmt.Errorf("%w: simulated: no server", store.ErrNotSent)
)

// command is a command on its way to the database.
type command struct {
	kind      string
	resources []string
	sent      time.Time
	// seed draws what happens while the command is carried out.
	seed uint64
}

func (c *command) String() string { return fmt.Sprintf("%s %v", c.kind, c.resources) }

// fate describes the faults that a command meets.
type fate struct {
	there, back time.Duration
	// refused replaces the effect with an error. lost replaces the answer. late is set if a refused
	// command takes effect nevertheless, after again; otherwise again is the time after which a copy
	// of a command takes effect whose sender got no answer. 0 is never.
	refused, lost error
	late          bool
	again         time.Duration
	// arrives is set if the command takes effect although its sender gave up while it was on its way.
	arrives bool
	// age is the age of the state that a read returns.
	age time.Duration
}

// slowFactor is the factor by which the commands of a slow process are slower.
const slowFactor = 20

// fateOf follows from the seed, and from the number of commands of this kind before.
func (p *process) fateOf(c *command) fate {
	p.mu.Lock()
	key := c.kind + "/" + c.resources[0]
	p.sent[key]++
	n := p.sent[key]
	p.mu.Unlock()
	c.seed = draw(p.w.seed, key, uint64(p.n), n) //nolint:gosec // a few processes
	d := newDice(c.seed)
	f := fate{there: d.between(200*time.Microsecond, 4*time.Millisecond), back: d.between(200*time.Microsecond, 4*time.Millisecond), arrives: d.chance(0.5)}
	if p.n == p.w.plan.far {
		f.there, f.back = f.there+p.w.plan.farTrip/2, f.back+p.w.plan.farTrip/2
	}
	if p.n == p.w.plan.sluggish {
		f.there, f.back = slowFactor*f.there, slowFactor*f.back
	}
	pl := p.w.plan
	if p.w.calm() {
		return f
	}
	slow, lost, refused, again, late := d.chance(pl.slow), d.chance(pl.lost), d.chance(pl.refused), d.chance(pl.again), d.chance(0.5)
	long, after := d.between(50*time.Millisecond, 8*time.Second), d.between(time.Second, 100*time.Second)
	if d.chance(0.6) {
		after = d.between(10*time.Millisecond, update.CommandTimeout)
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
		if f.late = late; d.chance(0.3) {
			f.refused, f.late = errAway, false
		}
	}
	if again || f.late {
		f.again = after
	}
	if d.chance(pl.old) && (c.kind == "load" || c.kind == "look") {
		f.age = d.between(10*time.Millisecond, 10*time.Second)
		lost = true
	}
	p.w.mu.Lock()
	if now := time.Now(); now.Before(p.deposed.to) { // it answers from the state in which it was deposed, and writes nothing
		f.age = now.Sub(p.deposed.from)
		if f.refused == nil {
			f.refused, f.late = errDeposed, false
		}
	}
	p.w.mu.Unlock()
	if slow || lost || refused {
		p.addTrouble(trouble{from: c.sent, to: c.sent.Add(f.there + f.back), single: true})
	}
	return f
}

// send takes a command to the database, and its answer back. run lets it take effect. It may be
// called later too, or twice.
func send[T any](ctx context.Context, p *process, c *command, run func(fate) (T, error)) (answer T, err error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%w: %w", store.ErrNotSent, err)
	}
	c.sent = time.Now()
	p.countCommand(c)
	f := p.fateOf(c)
	key := draw(c.seed, "hold")
	later := func(after time.Duration) {
		time.AfterFunc(after, func() { _, _ = run(f) })
	}
	p.hold(key)
	defer p.hold(key)
	if !pause(ctx, f.there) {
		if f.arrives {
			later(f.there)
		}
		return none, ctx.Err()
	}
	if f.refused == nil {
		f.refused = p.w.away(ctx, p, key)
	}
	if errors.Is(f.refused, errDeposed) && (c.kind == "load" || c.kind == "look") {
		f.refused = nil
	}
	if f.refused != nil {
		p.w.note(p.name, c.resources[0], "%s: %v (late: %v)", c, f.refused, f.late)
		if f.late {
			later(f.again)
		}
		return none, f.refused
	}
	answer, err = run(f)
	if !pause(ctx, f.back) {
		err = ctx.Err()
	} else if away := p.w.away(ctx, p, key); away != nil || f.lost != nil {
		p.w.note(p.name, c.resources[0], "%s: answer lost", c)
		err = errReset
	}
	if err != nil {
		if f.again > 0 { // no command is repeated whose answer has come
			later(f.again)
		}
		return none, err
	}
	return answer, nil
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

// The store of the process's Locker.
var _ store.Store = (*process)(nil)

// Load returns the latest state, or an old one if a deposed primary answers.
func (p *process) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	sent := time.Now()
	loaded, err := p.read(ctx, "load", names)
	if err == nil {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		for _, name := range names {
			all := append(p.reads[name], reading{sent, loaded.At, versionOf(loaded.Docs[name])})
			p.reads[name] = all[max(0, len(all)-mostReads):]
		}
	}
	return loaded, err
}

// mostReads is the number of reads of a resource that are remembered.
const mostReads = 100

// Look returns what a majority of the servers has. Of an acknowledged write it knows, unless a deposed
// primary answers.
func (p *process) LoadMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	return p.read(ctx, "look", names)
}

// Versions is a Look that returns the versions alone.
func (p *process) Versions(ctx context.Context, names ...string) (map[string]rules.Version, error) {
	loaded, err := p.read(ctx, "look", names)
	versions := make(map[string]rules.Version, len(loaded.Docs))
	for name, d := range loaded.Docs {
		versions[name] = d.Version
	}
	return versions, err
}

func (p *process) read(ctx context.Context, kind string, names []string) (store.Loaded, error) {
	resources := append(slices.Sorted(slices.Values(names)), "") // a read of nothing asks for the time
	return send(ctx, p, &command{kind: kind, resources: resources}, func(f fate) (store.Loaded, error) {
		return p.w.loaded(names, f.age, kind == "look"), nil
	})
}

// Swap is a command that the database carries out in as many steps, between which time may pass.
func (p *process) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	c := &command{kind: "swap"}
	for _, s := range swaps {
		c.resources = append(c.resources, s.Next.ID)
	}
	done, err := send(ctx, p, c, func(f fate) (int, error) {
		d := newDice(draw(c.seed, "steps"))
		cut := len(swaps)
		if cut > 1 && !p.w.calm() && d.chance(0.5) {
			cut = 1 + d.upTo(cut-1)
		}
		done, err := p.w.swap(p, swaps[:cut])
		if done < cut || err != nil || cut == len(swaps) {
			p.commit(c)
			return done, err
		}
		if f.lost != nil && d.chance(0.5) {
			return done, errReset // the rest of it never runs
		}
		pause(forDB, d.between(0, 20*time.Millisecond))
		more, err := p.w.swap(p, swaps[cut:])
		p.commit(c)
		return done + more, err
	})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for i, s := range swaps {
		if err == nil && i < done {
			p.acked[s.Next.ID] = time.Now()
		}
		if err != nil || i < done {
			p.w.answeredSwap(p, s.Next, err)
		}
	}
	return done, err
}

// commit waits until a majority has the writes so far.
func (p *process) commit(c *command) {
	p.w.mu.Lock()
	last := time.Time{}
	for _, name := range c.resources {
		if past := p.w.past[name]; len(past) > 0 && past[len(past)-1].committed.After(last) {
			last = past[len(past)-1].committed
		}
	}
	p.w.mu.Unlock()
	pause(forDB, time.Until(last))
}

// Extend is a command for several documents. If it fails it may have extended some of them.
func (p *process) Extend(ctx context.Context, parts []store.Extension) (map[string]bool, string, error) {
	type answer struct {
		rest map[string]bool
		r    string
	}
	c := &command{kind: "extend", resources: extended(parts)}
	a, err := send(ctx, p, c, func(f fate) (answer, error) {
		pause(forDB, p.w.costOf(parts))
		most := c.resources[len(c.resources)-1]
		if f.lost != nil {
			most = c.resources[newDice(draw(c.seed, "some")).upTo(len(c.resources))]
		}
		good := slices.DeleteFunc(slices.Clone(parts), func(e store.Extension) bool { return e.Resource > most || p.w.unwritable(e.Resource) })
		rest, r, err := p.w.extend(p, good)
		if err == nil && len(good) < len(parts) {
			err = errInvalid
		}
		p.commit(c)
		return answer{rest, r}, err
	})
	if err != nil {
		a.rest = map[string]bool{}
		for _, name := range c.resources {
			a.rest[name] = false
		}
	}
	return a.rest, a.r, err
}

// Reserve reserves a document.
func (p *process) Reserve(ctx context.Context, name string, r rules.Reservation) error {
	_, err := send(ctx, p, &command{kind: "reserve", resources: []string{name}}, func(fate) (bool, error) {
		return true, p.w.write(p, []string{name}, nil, func() error { return p.w.db.Reserve(forDB, name, r) })
	})
	return err
}

// List looks at one document after the other.
func (p *process) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		for _, name := range p.w.plan.resources {
			if q.Resource != "" && q.Resource != name {
				continue
			}
			loaded, err := p.LoadMajority(ctx, name)
			if err != nil {
				yield(rules.Document{}, err)
				return
			}
			if d := loaded.Docs[name]; d != nil && !yield(*d, nil) {
				return
			}
		}
	}
}

// SetPolicy changes the policies of the database.
func (p *process) SetPolicy(ctx context.Context, change rules.PolicyChange) error {
	_, err := send(ctx, p, &command{kind: "set policy", resources: []string{""}}, func(fate) (struct{}, error) { return struct{}{}, p.w.db.SetPolicy(forDB, change) })
	return err
}

// MissingIndexes returns none. With it the Locker reads the identity of its collection at times.
func (p *process) MissingIndexes(context.Context) (collection string, missing []string, err error) {
	return "locks", nil, nil
}

// Identify returns the identity of the database.
func (p *process) Identify(ctx context.Context) (rules.Identity, error) {
	return send(ctx, p, &command{kind: "identify", resources: []string{""}}, func(fate) (rules.Identity, error) { return p.w.db.Identify(forDB) })
}

// Prepare does nothing.
func (p *process) Prepare(context.Context) error { return nil }

// forDB is the context of commands that have arrived: their senders may have given up.
var forDB = context.Background()
