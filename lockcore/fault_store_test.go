package lockcore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// errCut is the error of a connection that was closed: the outcome of the command is unknown.
var errCut = errors.New("connection cut")

// errNotSent is the error of a command that was surely not sent.
var errNotSent = fmt.Errorf("%w: no server", store.ErrNotSent)

// kind is the kind of a command to a store.
type kind string

const (
	kindLoad     kind = "load"
	kindLook     kind = "look"
	kindVersions kind = "versions"
	kindSwap     kind = "swap"
	kindExtend   kind = "extend"
	kindReserve  kind = "reserve"
	kindList     kind = "list"
	kindIdentify kind = "identify"
)

// command is a command that a Locker sent to its store.
type command struct {
	kind  kind
	names []string
	// before are the documents that the swaps replace, as they were stored when the command was sent. A
	// document that does not exist, or that has another version, is empty.
	swaps  []store.Swap
	before []rules.Document
	parts  []store.Extension
	query  rules.Query
}

// hook is called with a command, and may fail it or block.
type hook func(ctx context.Context, c command) error

// faultStore is a store in memory behind a network that a test controls.
type faultStore struct {
	*lockcoretest.Store
	mu sync.Mutex
	// before is called before a command takes effect: if it fails, the command has no effect. after is
	// called once the command took effect: if it fails, the answer is lost.
	before, after hook
	sent          []command
}

func newFaultStore() *faultStore { return newFaultStoreAt(time.Now) }

// newFaultStoreAt returns a store whose server has the given clock.
func newFaultStoreAt(now func() time.Time) *faultStore {
	return &faultStore{Store: lockcoretest.NewStore(now)}
}

// set replaces the hooks. A hook that is nil does nothing.
func (s *faultStore) set(before, after hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// commands returns the commands that were sent and that meet all conditions.
func (s *faultStore) commands(which ...condition) []command {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []command
	for _, c := range s.sent {
		if all(which...)(c) {
			found = append(found, c)
		}
	}
	return found
}

// count returns the number of commands that meet all conditions.
func (s *faultStore) count(which ...condition) int { return len(s.commands(which...)) }

// swaps returns the number of swaps that were sent.
func (s *faultStore) swaps() int { return s.count(of(kindSwap)) }

// through sends a command between the hooks.
func through[T any](ctx context.Context, s *faultStore, c command, send func() (T, error)) (answer T, err error) {
	for _, sw := range c.swaps {
		d := s.Document(sw.Next.ID)
		if d.Version != sw.Prev {
			d = rules.Document{}
		}
		c.names, c.before = append(c.names, sw.Next.ID), append(c.before, d)
	}
	for _, p := range c.parts {
		c.names = append(c.names, p.Resource)
	}
	s.mu.Lock()
	s.sent = append(s.sent, c)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		err = before(ctx, c)
	}
	var sent T
	if err == nil {
		sent, err = send()
	}
	if err == nil && after != nil {
		err = after(ctx, c)
	}
	if err != nil {
		return answer, err
	}
	return sent, nil
}

func (s *faultStore) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	return through(ctx, s, command{kind: kindLoad, names: names}, func() (store.Loaded, error) { return s.Store.Load(ctx, names...) })
}

func (s *faultStore) LoadMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	return through(ctx, s, command{kind: kindLook, names: names}, func() (store.Loaded, error) { return s.Store.LoadMajority(ctx, names...) })
}

func (s *faultStore) Versions(ctx context.Context, names ...string) (map[string]rules.Version, error) {
	c := command{kind: kindVersions, names: names}
	return through(ctx, s, c, func() (map[string]rules.Version, error) { return s.Store.Versions(ctx, names...) })
}

func (s *faultStore) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	return through(ctx, s, command{kind: kindSwap, swaps: swaps}, func() (int, error) { return s.Store.Swap(ctx, swaps...) })
}

func (s *faultStore) Extend(ctx context.Context, parts []store.Extension) (rest map[string]bool, r string, err error) {
	rest, err = through(ctx, s, command{kind: kindExtend, parts: parts}, func() (m map[string]bool, err error) {
		m, r, err = s.Store.Extend(ctx, parts)
		return m, err
	})
	if err != nil {
		rest = map[string]bool{}
		for _, p := range parts {
			rest[p.Resource] = false
		}
	}
	return rest, r, err
}

func (s *faultStore) Reserve(ctx context.Context, name string, r rules.Reservation) error {
	_, err := through(ctx, s, command{kind: kindReserve, names: []string{name}}, func() (any, error) { return nil, s.Store.Reserve(ctx, name, r) })
	return err
}

func (s *faultStore) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	c := command{kind: kindList, query: q}
	docs, err := through(ctx, s, c, func() (iter.Seq2[rules.Document, error], error) { return s.Store.List(ctx, q), nil })
	if err != nil {
		return func(yield func(rules.Document, error) bool) { yield(rules.Document{}, err) }
	}
	return docs
}

func (s *faultStore) Identify(ctx context.Context) (rules.Identity, error) {
	return through(ctx, s, command{kind: kindIdentify}, func() (rules.Identity, error) { return s.Store.Identify(ctx) })
}

// condition reports whether a hook concerns a command.
type condition func(c command) bool

func all(which ...condition) condition {
	return func(c command) bool {
		return !slices.ContainsFunc(which, func(is condition) bool { return !is(c) })
	}
}

func of(kinds ...kind) condition {
	return func(c command) bool { return slices.Contains(kinds, c.kind) }
}

// onResource matches commands that name a resource.
func onResource(name string) condition {
	return func(c command) bool { return slices.Contains(c.names, name) }
}

// searching matches searches for deadlocks.
func searching(c command) bool { return c.kind == kindList && c.query.Waiting }

// swapping matches swaps of which at least one makes the given change.
func swapping(change func(before, after *rules.Document) bool) condition {
	return func(c command) bool {
		for i := range c.swaps {
			if change(&c.before[i], c.swaps[i].Next) {
				return true
			}
		}
		return false
	}
}

// entries returns the parts and holds of a lock ID by ID, without claims. An empty lock ID matches all.
func entries(d *rules.Document, lockID string) map[string]rules.Entry {
	found := map[string]rules.Entry{}
	for _, e := range d.Entries {
		if (lockID == "" || e.LockID == lockID) && e.State != rules.StateClaimed {
			found[e.ID] = e
		}
	}
	return found
}

// grants matches swaps that make a part or a hold of a lock ID.
func grants(lockID string) condition {
	return swapping(func(before, after *rules.Document) bool {
		was := entries(before, lockID)
		for id := range entries(after, lockID) {
			if _, known := was[id]; !known {
				return true
			}
		}
		return false
	})
}

// queues matches swaps that put a request of a lock ID into the queue, or refresh its position.
func queues(lockID string) condition {
	return swapping(func(before, after *rules.Document) bool {
		return slices.ContainsFunc(after.Waiters, func(w rules.Waiter) bool {
			return w.LockID == lockID && !slices.ContainsFunc(before.Waiters, func(old rules.Waiter) bool {
				return old.SamePart(&w.Caller) && old.ExpiresAt.Equal(w.ExpiresAt)
			})
		})
	})
}

// ends matches swaps after which an entry of a lock ID is missing, or drains.
func ends(lockID string) condition {
	return swapping(func(before, after *rules.Document) bool {
		is := entries(after, lockID)
		for id, was := range entries(before, lockID) {
			if e, kept := is[id]; !kept || e.State != was.State {
				return true
			}
		}
		return false
	})
}

// renews matches extensions, and swaps that renew parts one by one.
func renews(c command) bool {
	return c.kind == kindExtend || swapping(func(before, after *rules.Document) bool {
		was := entries(before, "")
		for id, e := range entries(after, "") {
			if old, known := was[id]; known && e.RenewedAt != nil && (old.RenewedAt == nil || old.RenewedAt.Before(*e.RenewedAt)) {
				return true
			}
		}
		return false
	})(c)
}

// withdraws matches swaps that withdraw a request from the queue to end a deadlock.
var withdraws = swapping(func(before, after *rules.Document) bool {
	tombstones := func(d *rules.Document) (n int) {
		for _, w := range d.Waiters {
			if w.Verdict != "" {
				n++
			}
		}
		return n
	}
	return tombstones(after) > tombstones(before)
})

// cut loses the answers of the next writes after they took effect; a negative number loses all.
func (s *faultStore) cut(answers int) {
	if answers < 0 {
		answers = 1 << 30
	}
	s.set(nil, times(answers, cutting(), of(kindSwap, kindExtend)))
}

// failing fails all commands that match.
func failing(err error, which ...condition) hook {
	return func(_ context.Context, c command) error {
		if all(which...)(c) {
			return err
		}
		return nil
	}
}

// cutting closes the connection of all commands that match: their outcome is unknown.
func cutting(which ...condition) hook { return failing(errCut, which...) }

// hanging blocks the commands that match until their contexts end.
func hanging(which ...condition) hook {
	return func(ctx context.Context, c command) error {
		if all(which...)(c) {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

// times calls a hook for the first n commands that match.
func times(n int, do hook, which ...condition) hook {
	var mu sync.Mutex
	return func(ctx context.Context, c command) error {
		if !all(which...)(c) {
			return nil
		}
		mu.Lock()
		does := n > 0
		n--
		mu.Unlock()
		if does {
			return do(ctx, c)
		}
		return nil
	}
}

// both calls two hooks. The first error counts.
func both(first, second hook) hook {
	return func(ctx context.Context, c command) error {
		if err := first(ctx, c); err != nil {
			return err
		}
		return second(ctx, c)
	}
}

// change carries out an operation in a store, as another process does.
func change(ctx context.Context, s store.Store, op rules.Op) error {
	for {
		loaded, err := s.Load(ctx, op.ResourceName())
		if err != nil {
			return err
		}
		before := loaded.Docs[op.ResourceName()]
		after, _ := op.Apply(before, loaded.At, rules.Settings{ClaimTTL: 1000})
		sw := store.Swap{Next: after}
		if before != nil {
			sw.Prev = before.Version
		}
		after.Version = rules.Version{N: sw.Prev.N + 1, R: rand.Text()}
		done, err := s.Swap(ctx, sw)
		if err != nil || done == 1 {
			return err
		}
	}
}

// laggingStore reads as a server that is behind: documents as they were when the store was made. Writes, and reads before them, are
// those of the store inside.
type laggingStore struct {
	*faultStore
	behind []rules.Document
}

func newLaggingStore(db *faultStore, names ...string) *laggingStore {
	s := &laggingStore{faultStore: db}
	for _, name := range names {
		s.behind = append(s.behind, db.Document(name))
	}
	return s
}

func (s *laggingStore) LoadMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	loaded, err := s.faultStore.LoadMajority(ctx, names...)
	for i, d := range s.behind {
		if _, asked := loaded.Docs[d.ID]; asked {
			loaded.Docs[d.ID] = &s.behind[i]
		}
	}
	return loaded, err
}

func (s *laggingStore) List(context.Context, rules.Query) iter.Seq2[rules.Document, error] {
	return func(yield func(rules.Document, error) bool) {
		for _, d := range s.behind {
			d.At = time.Now()
			if !yield(d, nil) {
				return
			}
		}
	}
}
