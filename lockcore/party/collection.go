package party

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// identityEvery is the interval in which a Locker checks what it knows of its collection's identity. It reads it if it
// knows it for longer than that, so what it knows is less than ten seconds old.
const identityEvery = 4 * time.Second

// watchIdentity keeps the identity up to date, once the Locker has used its collection. It repeats itself until Close.
func (l *Locker) watchIdentity() {
	if l.life.closing.Err() != nil {
		return
	}
	if known, at := l.lines.Identity(); known.ID != "" && elapsed(at, time.Now()) >= identityEvery {
		_, _ = l.identify(l.life.closing) // the next one is soon
	}
	l.clock.AfterFunc(identityEvery, l.watchIdentity)
}

// identify reads the collection's identity.
func (l *Locker) identify(ctx context.Context) (rules.Identity, error) {
	if l.life.closed.Err() != nil {
		return rules.Identity{}, ErrClosed
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	identity, err := l.store.Identify(ctx)
	if err != nil {
		return rules.Identity{}, failure("identify", "", Order{}, err, false)
	}
	l.lines.Adopt(&identity)
	return identity, nil
}

// collectionChanged ends all sessions: what they held is gone.
func (l *Locker) collectionChanged(before, now *rules.Identity) {
	reason := "everything in the collection was released by force, by lockstep clear or after a restore"
	if before.ID != now.ID {
		reason = fmt.Sprintf("the collection with the ID %s, in which it was held, was dropped or replaced by that with the ID %s", before.ID, now.ID)
	}
	for _, s := range l.keeper.all() {
		s.lose(reason, func(*held) bool { return true })
	}
}

// CollectionID returns the ID of the collection in which the Locker keeps its locks. Two Lockers exclude
// each other if they have the same ID. It asks the database, and returns its errors, or ErrClosed.
func (l *Locker) CollectionID(ctx context.Context) (string, error) {
	identity, err := l.identify(ctx)
	return identity.ID, err
}

// KnownCollectionID returns the ID of the collection as this Locker has read it last, or "" if it has not. Once
// the Locker has used its collection, that is less than ten seconds ago as long as the database answers.
func (l *Locker) KnownCollectionID() string {
	known, _ := l.lines.Identity()
	return known.ID
}

// Replaces reports whether the collection of this Locker replaces the one with this ID, by the decision of an
// operator, and returns its own ID. A collection never replaces itself. It asks the database.
func (l *Locker) Replaces(ctx context.Context, id string) (replaces bool, own string, err error) {
	identity, err := l.identify(ctx)
	return identity.HasReplaced(id), identity.ID, err
}

// Replace records that the collection of this Locker replaces the one with this ID, whose locks are lost. Steps that
// carry that ID wait until then, since their worker may have a wrong configuration. After it they fail with a
// *LostError, or take their locks again if they may. The last 20 IDs count. It may be repeated. The reason is for
// people. Errors: *InvalidError, *LayoutError, and the database's.
func (l *Locker) Replace(ctx context.Context, id, reason string) error {
	if err := errors.Join(checkText("id", id, 1, maxName), checkText("reason", reason, 1, maxName)); err != nil {
		return err
	}
	return l.changeIdentity(ctx, func(i *rules.Identity) error {
		if id == i.ID {
			return &InvalidError{Field: "id", Value: quote(id), Bound: "the ID of another collection: this is the collection's own"}
		}
		i.Replaces = slices.DeleteFunc(slices.Clone(i.Replaces), func(r rules.Replaced) bool { return r.ID == id })
		i.Replaces = append(i.Replaces, rules.Replaced{ID: id, Reason: reason})
		i.Replaces = i.Replaces[max(0, len(i.Replaces)-rules.MaxReplaces):]
		return nil
	})
}

// changeIdentity changes the identity by compare-and-set.
func (l *Locker) changeIdentity(ctx context.Context, change func(*rules.Identity) error) error {
	s, err := l.collectionStore()
	if err != nil {
		return err
	}
	for {
		was, err := l.identify(ctx)
		if err != nil {
			return err
		}
		is := was
		if err := change(&is); err != nil {
			return err
		}
		if changed, err := s.ChangeIdentity(ctx, was, is); err != nil || changed {
			return err
		}
	}
}

func (l *Locker) collectionStore() (store.WorkerStore, error) {
	if s, ok := l.store.(store.WorkerStore); ok {
		return s, nil
	}
	return nil, &InvalidError{Field: "store", Value: "in memory", Bound: "a collection"}
}

// Cleared is the result of [Locker.Clear].
type Cleared struct {
	// ID is that of the collection.
	ID string `json:"id"`
	// Resources is the number of resources on which something was ended; Holds and Claims are what was ended.
	Resources int `json:"resources"`
	Holds     int `json:"holds"`
	Claims    int `json:"claims"`
	// Deleted names the documents that could not be decoded.
	Deleted []string `json:"deleted"`
}

// Clear releases everything in the collection by force, for example after a backup was restored, which brings back
// holds that were lost later. It ends all holds and claims, document by document, as [Locker.Revoke] does: parts that may
// still be at work keep others out until they leave or expire; queues, fences and evidence stay. It then changes the
// collection's epoch, so that every Locker drops what it knows within ten seconds, and deletes documents that cannot
// be decoded. The reason has 1 to 512 bytes.
//
// It may be repeated, and must be after an error, with which it returns what was done until then.
func (l *Locker) Clear(ctx context.Context, reason string) (c Cleared, err error) {
	s, err := l.collectionStore()
	if err := cmp.Or(err, checkText("reason", reason, 1, maxName)); err != nil {
		return c, err
	}
	var damaged []string
	for d, err := range l.store.List(ctx, rules.Query{}) {
		switch {
		case err != nil && d.ID != "":
			damaged = append(damaged, d.ID)
			continue
		case err != nil:
			return c, failure("list", "", Order{}, err, false)
		case !slices.ContainsFunc(d.Entries, func(e rules.Entry) bool { return e.State != rules.StateDraining }):
			continue
		}
		op := rules.Release{Policy: l.cfg.policy(), Resource: d.ID, All: true, Force: true, Reason: reason}
		why := Release{Force: true, Reason: reason}
		a, err := l.end(ctx, telemetry.SpanRelease, Lease{Resource: d.ID}, why.ending(), op)
		if err != nil {
			return c, err
		}
		c.count(a.Ended)
	}
	err = l.changeIdentity(ctx, func(i *rules.Identity) error {
		i.Epoch, c.ID = rand.Text(), i.ID
		return nil
	})
	for _, name := range damaged { // in the new epoch no process can bring them back
		deleted, failed := s.DeleteDamaged(ctx, name)
		if deleted {
			c.Deleted = append(c.Deleted, name)
		}
		err = errors.Join(err, failed)
	}
	if err == nil {
		_, err = l.identify(ctx)
	}
	return c, err
}

// count adds the entries that were ended on a resource. A hold has an entry for each part.
func (c *Cleared) count(ended []rules.Entry) {
	c.Resources++
	holds := map[int64]bool{}
	for i := range ended {
		switch e := &ended[i]; {
		case e.Holds():
			holds[e.FirstFence] = true
		case e.State == rules.StateClaimed:
			c.Claims++
		}
	}
	c.Holds += len(holds)
}
