package lockcore

import (
	"context"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// identityEvery is the interval in which a Locker checks what it knows of its collection's identity. It reads it if it
// knows it for longer than that, so what it knows is less than ten seconds old.
const identityEvery = 4 * time.Second

// watchIdentity keeps the identity up to date, once the Locker has used its collection. It repeats itself until Close.
func (l *Locker) watchIdentity() {
	if l.life.closing.Err() != nil {
		return
	}
	if known, at := l.lines.Identity(); known.ID != "" && clock.Elapsed(at, clock.Now()) >= identityEvery {
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
	sent := clock.Now()
	identity, err := l.store.Identify(ctx)
	if err != nil {
		return rules.Identity{}, failure("identify", "", Order{}, err, false)
	}
	l.lines.Adopt(&identity, sent)
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
func (l *Steps) CollectionID(ctx context.Context) (string, error) {
	identity, err := l.identify(ctx)
	return identity.ID, err
}

// KnownCollectionID returns the ID of the collection as this Locker has read it last, or "" if it has not. Once
// the Locker has used its collection, that is less than ten seconds ago as long as the database answers.
func (l *Steps) KnownCollectionID() string {
	known, _ := l.lines.Identity()
	return known.ID
}

// Replaces reports whether the collection of this Locker replaces the one with this ID, by the decision of an
// operator, and returns its own ID. A collection never replaces itself. It asks the database.
func (l *Steps) Replaces(ctx context.Context, id string) (replaces bool, own string, err error) {
	identity, err := l.identify(ctx)
	return identity.HasReplaced(id), identity.ID, err
}
