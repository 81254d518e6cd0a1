package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Memory is a Store in memory. It keeps documents in their stored form, so that the documents it returns
// share no memory with it, and times are rounded to milliseconds as in MongoDB. Documents are removed
// only by Delete.
type Memory struct {
	now      func() time.Time
	identity string

	mu     sync.Mutex
	docs   map[string]memoryDocument
	writes int64
	// policies are never changed, but replaced. Nil if there never was one.
	policies *rules.Policies
}

// memoryDocument is a stored document. version is a copy of the version in raw.
type memoryDocument struct {
	raw     bson.Raw
	version rules.Version
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store. now returns the server's time. It must not use the store, which is
// locked while it is called.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, identity: rand.Text(), docs: map[string]memoryDocument{}}
}

// Document returns a copy of a document, without At.
func (m *Memory) Document(name string) (rules.Document, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.docs[name]
	if !ok {
		return rules.Document{}, false
	}
	d, err := decode(stored.raw)
	if err != nil {
		return rules.Document{}, false // impossible, because encode made it
	}
	return *d, true
}

// Version returns the version of a document, the zero Version if there is none.
func (m *Memory) Version(name string) rules.Version {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.docs[name].version
}

// Put stores a document unconditionally. Its version must not be zero.
func (m *Memory) Put(d *rules.Document) error {
	raw, err := encode(d)
	if err != nil {
		return fmt.Errorf("lockstep: put %q: %w", d.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs[d.ID] = memoryDocument{raw, d.Version}
	return nil
}

// Damage stores something that is not a lock document under a name, as another program would, or restores a
// document that it has replaced.
func (m *Memory) Damage(name string, raw bson.Raw) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs[name] = memoryDocument{raw: raw}
}

// Delete removes a document, as a TTL index does.
func (m *Memory) Delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.docs, name)
}

// Names returns the names of all documents, sorted.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.docs))
}

// Load returns copies of documents.
func (m *Memory) Load(ctx context.Context, names ...string) (Loaded, error) {
	if err := ctx.Err(); err != nil {
		return Loaded{}, contextEnded(err, "read %q", names)
	}
	m.mu.Lock()
	loaded := Loaded{Docs: make(map[string]*rules.Document, len(names)), At: m.time(), Identity: m.identityNow()}
	stored := make(map[string]bson.Raw, len(names))
	for _, name := range names {
		if d, ok := m.docs[name]; ok {
			stored[name] = d.raw
		}
	}
	m.mu.Unlock()
	for name, raw := range stored { // unlocked, because writes replace raw documents and never change them
		loaded.add(name, raw)
	}
	loaded.complete()
	return loaded, nil
}

// LoadMajority is like Load.
func (m *Memory) LoadMajority(ctx context.Context, names ...string) (Loaded, error) {
	return m.Load(ctx, names...)
}

// Versions returns the versions of documents.
func (m *Memory) Versions(ctx context.Context, names ...string) (map[string]rules.Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, contextEnded(err, "read versions of %q", names)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	versions := map[string]rules.Version{}
	for _, name := range names {
		if d, ok := m.docs[name]; ok {
			versions[name] = d.version
		}
	}
	return versions, nil
}

func (m *Memory) time() time.Time { return m.now().UTC().Truncate(time.Millisecond) }

// Swap behaves like that of Mongo. The generation of the store never changes.
func (m *Memory) Swap(ctx context.Context, swaps ...Swap) (done int, err error) {
	encoded, err := encodeAll(swaps)
	if err != nil || len(swaps) == 0 {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, contextEnded(err, "write %q", swaps[0].Next.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range swaps {
		stored, exists := m.docs[s.Next.ID]
		if exists != (s.Prev != rules.Version{}) || stored.version != s.Prev {
			return i, nil
		}
		m.docs[s.Next.ID] = memoryDocument{encoded[i], s.Next.Version}
	}
	return len(swaps), nil
}

// Extend raises the ends of entries.
func (m *Memory) Extend(ctx context.Context, parts []Extension) (rest map[string]bool, r string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = m.random()
	rest = map[string]bool{}
	documents := groupExtensions(parts)
	for _, named := range documents {
		rest[named.name] = false
	}
	if err := ctx.Err(); err != nil {
		return rest, r, contextEnded(err, "extend %d entries", len(parts))
	}
	for _, named := range documents {
		extended, err := m.update(named.name, r, func(d *rules.Document) bool {
			rest[named.name] = named.names(d)
			return rest[named.name] && named.apply(d)
		})
		if err != nil {
			return rest, r, err
		}
		if extended {
			delete(rest, named.name)
		}
	}
	return rest, r, nil
}

// apply extends the named entries unless a reservation prevents it, and reports whether it did.
func (d *documentExtension) apply(doc *rules.Document) bool {
	if d.yields && doc.ReservedByOther("", d.parts[0].At) {
		return false
	}
	for i := range doc.Entries {
		e := &doc.Entries[i]
		for _, p := range d.parts {
			if e.ID != p.ID {
				continue
			}
			e.ExpiresAt = rules.Later(e.ExpiresAt, p.End)
			if e.RenewedAt == nil || e.RenewedAt.Before(p.At) {
				e.RenewedAt = &p.At
			}
		}
	}
	doc.IdleAt = rules.Later(doc.IdleAt, d.idleAt)
	return true
}

// Reserve sets the reservation of a document.
func (m *Memory) Reserve(ctx context.Context, name string, reservation rules.Reservation) error {
	if err := ctx.Err(); err != nil {
		return contextEnded(err, "reserve %q", name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.update(name, m.random(), func(d *rules.Document) bool {
		if d.ReservedByOther("", reservation.From) {
			return false
		}
		d.Reserved = &rules.Reservation{By: reservation.By, Until: reservation.Until}
		return true
	})
	return err
}

// update changes a document and gives it a new version, if it exists and change returns true.
func (m *Memory) update(name, r string, change func(d *rules.Document) bool) (changed bool, err error) {
	stored, ok := m.docs[name]
	if !ok {
		return false, nil
	}
	d, err := decode(stored.raw)
	if err != nil || !change(d) {
		return false, err
	}
	d.Version = rules.Version{N: d.Version.N + 1, R: r}
	raw, err := encode(d)
	if err != nil {
		return false, err
	}
	m.docs[name] = memoryDocument{raw, d.Version}
	return true, nil
}

// random returns a new value. It is a counter, so that a simulation can be repeated.
func (m *Memory) random() string {
	m.writes++
	return fmt.Sprintf("memory-%d", m.writes)
}

// List returns the documents that match when it is called.
func (m *Memory) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		loaded, err := m.Load(ctx, m.Names()...)
		if err != nil {
			yield(rules.Document{}, err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(loaded.Docs)) {
			if d := loaded.Docs[name]; matches(d, q) && !yield(*d, nil) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(loaded.Damaged)) {
			if (q.Resource == "" || q.Resource == name) && strings.HasPrefix(name, q.Prefix) && !yield(rules.Document{}, loaded.Damaged[name]) {
				return
			}
		}
	}
}

// Identify returns the identity of the store.
func (m *Memory) Identify(ctx context.Context) (rules.Identity, error) {
	if err := ctx.Err(); err != nil {
		return rules.Identity{}, contextEnded(err, "identify the collection")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identityNow(), nil
}

func (m *Memory) identityNow() rules.Identity {
	i := rules.Identity{ID: m.identity, Epoch: m.identity, Version: rules.LayoutVersion, At: m.time()}
	if m.policies != nil {
		i.Version, i.PolicyVersion, i.Policies = rules.PolicyLayout, m.policies.Version, m.policies
	}
	return i
}

// SetPolicy changes the policies.
func (m *Memory) SetPolicy(ctx context.Context, change rules.PolicyChange) error {
	if err := ctx.Err(); err != nil {
		return contextEnded(err, "change the policies")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	change.At = m.time()
	next := *cmp.Or(m.policies, &rules.Policies{})
	if err := next.Change(&change); err != nil {
		return err
	}
	next.Version.R = m.random()
	m.policies = &next
	return nil
}

// Prepare does nothing.
func (m *Memory) Prepare(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return contextEnded(err, "create indexes")
	}
	return nil
}
