package simulation

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// database is the server: the documents as they are and were, its clock, and its outages.
type database struct {
	db *store.Memory
	// writes counts writes, and skew is how far the server's clock is behind.
	writes atomic.Uint64
	skew   atomic.Int64
	// docs are the documents as they are stored. They are never changed, only replaced.
	docs map[string]*rules.Document
	past map[string][]state
	// blocked are resources that cannot be written, and until when. outages have the name of a
	// process as resource, "" for all.
	blocked map[string]time.Time
	outages []trouble
}

// state is a document from a time on, nil if there was none. A majority has it some time later.
type state struct {
	from, committed time.Time
	doc             *rules.Document
}

// reading is a read of a process, with the server's time at.
type reading struct {
	sent, at time.Time
	version  rules.Version
}

// pastKept bounds the age of the states that a read may return.
const pastKept = 15 * time.Second

// serverNow returns the server's time, with jitter.
func (w *world) serverNow() time.Time {
	now := w.clock()
	if j := w.plan.jitter; j > 0 {
		now = now.Add(newDice(draw(w.seed, "now", w.writes.Load())).between(-j/2, j/2))
	}
	return now
}

// clock returns the server's time without jitter.
func (w *world) clock() time.Time { return time.Now().Add(-time.Duration(w.skew.Load())) }

// doc returns the stored document of a resource, an empty one if there is none. The mutex is held.
func (w *world) doc(resource string) *rules.Document {
	d := rules.Document{ID: resource}
	if stored := w.docs[resource]; stored != nil {
		d = *stored
	}
	d.Policy = w.policies().For(resource, w.clock())
	return &d
}

// policies returns the ones of operators.
func (w *world) policies() *rules.Policies {
	identity, err := w.db.Identify(forDB)
	if err != nil {
		panic(err)
	}
	return identity.Policies
}

// document is doc, without the mutex.
func (w *world) document(resource string) *rules.Document {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doc(resource)
}

func versionOf(d *rules.Document) rules.Version {
	if d == nil {
		return rules.Version{}
	}
	return d.Version
}

// loaded returns copies of documents as they were some time ago, or as a majority had them then, with
// the server's time of now.
func (w *world) loaded(names []string, age time.Duration, majority bool) store.Loaded {
	at := w.serverNow().UTC().Truncate(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	identity, err := w.db.Identify(forDB)
	if err != nil {
		panic(err)
	}
	out := store.Loaded{Docs: map[string]*rules.Document{}, At: at, Identity: identity}
	for _, name := range names {
		d := w.docs[name]
		for _, s := range slices.Backward(w.past[name]) {
			from := s.from
			if majority {
				from = s.committed
			}
			if d = s.doc; time.Since(from) >= age {
				break
			}
		}
		if d != nil {
			out.Docs[name] = d.Clone()
			out.Docs[name].At, out.Docs[name].Policy = at, identity.Policies.For(name, at)
		}
	}
	return out
}

// swap replaces documents in order, up to the first that has another version, or cannot be written.
func (w *world) swap(p *process, swaps []store.Swap) (done int, err error) {
	var names []string
	next := map[string]*rules.Document{}
	blocked := slices.IndexFunc(swaps, func(s store.Swap) bool { return w.unwritable(s.Next.ID) })
	if blocked >= 0 {
		swaps = swaps[:blocked]
	}
	for _, s := range swaps {
		names, next[s.Next.ID] = append(names, s.Next.ID), s.Next
	}
	err = w.write(p, names, next, func() (err error) {
		done, err = w.db.Swap(forDB, swaps...)
		return err
	})
	if err == nil && blocked >= 0 && done == blocked {
		err = errInvalid
	}
	return done, err
}

func (w *world) extend(p *process, parts []store.Extension) (rest map[string]bool, r string, err error) {
	err = w.write(p, extended(parts), nil, func() (err error) {
		rest, r, err = w.db.Extend(forDB, parts)
		return err
	})
	return rest, r, err
}

// extended returns the names of the documents of extensions.
func extended(parts []store.Extension) (names []string) {
	for _, e := range parts {
		if !slices.Contains(names, e.Resource) {
			names = append(names, e.Resource)
		}
	}
	slices.Sort(names)
	return names
}

// write carries out a write, and checks what it has done. next are the documents of a swap, each as of
// the time by which it has judged expiry; nil if the write judges no expiry.
func (w *world) write(p *process, names []string, next map[string]*rules.Document, do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes.Add(1)
	if err := do(); err != nil {
		return err
	}
	for _, name := range names {
		before := *w.doc(name)
		version := w.db.Version(name)
		if next != nil && version == before.Version {
			continue // a conflict
		}
		after, at := rules.Document{}, time.Time{}
		if d := next[name]; d != nil && d.Version == version {
			after, at = *d, d.At
		} else {
			after, _ = w.db.Document(name)
			after.At = w.clock()
		}
		before.ID, before.At = name, after.At
		check := &change{w: w, p: p, before: &before, after: &after, judged: at}
		check.begin()
		kept := w.past[name]
		for len(kept) > 1 && time.Since(kept[1].from) > pastKept {
			kept = kept[1:]
		}
		if len(kept) == 0 {
			kept = []state{{doc: w.docs[name]}}
		}
		committed := time.Now()
		if w.plan.lag > 0 && !w.faultless {
			committed = committed.Add(newDice(draw(w.seed, "lag", w.writes.Load())).between(0, w.plan.lag))
		}
		if last := kept[len(kept)-1].committed; last.After(committed) {
			committed = last
		}
		w.docs[name], w.past[name] = &after, append(kept, state{time.Now(), committed, &after})
		if !w.isOver() {
			check.run()
		}
	}
	return nil
}

// outage keeps a process, or all if the name is "", from the database from now on.
func (w *world) outage(name string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, trouble{from: time.Now(), to: until, resource: name})
}

// cutOff begins an outage of a process after a while.
func (w *world) cutOff(p *process, after, lasts time.Duration) {
	time.AfterFunc(after, func() {
		until := time.Now().Add(lasts)
		w.note(p.name, "", "is cut off for %v", lasts.Round(time.Millisecond))
		w.outage(p.name, until)
		p.addTrouble(trouble{from: time.Now(), to: until})
	})
}

// away returns the error of a command during an outage, after the time that it takes to notice.
func (w *world) away(ctx context.Context, p *process, key uint64) error {
	w.mu.Lock()
	out := !w.faultless && slices.ContainsFunc(w.outages, func(o trouble) bool {
		return (o.resource == "" || o.resource == p.name) && time.Now().Before(o.to)
	})
	w.mu.Unlock()
	if !out {
		return nil
	}
	pause(ctx, time.Duration(key%uint64(2*time.Second)))
	if key&1 == 0 {
		return errReset
	}
	return errAway
}

func (w *world) unwritable(resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.faultless && time.Now().Before(w.blocked[resource])
}
