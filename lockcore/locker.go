package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
)

// Locker acquires, renews and releases locks in one collection. It is safe for concurrent use; one per
// process and collection is enough.
//
//	Acquire, TryAcquire   lock resources for a Session, with or without waiting
//	Resume, Leave         take over or end the use of leases that another process has stored or sent
//	Revoke                ends a hold by force
//	Status, Deadlocks     list holders and waiters, and cycles of waits
//	CreateIndexes, Close  once per deployment, and once per process
//
// The database has one document for each resource. An acquire and a release each replace it once. A read
// precedes that if the process has not cached the document, or if others hold the resource or wait for it.
// Operations of one process on one resource share a replacement. Several free resources cost one read and one
// command. One command renews the leases of all sessions, on up to 500 resources.
type Locker struct {
	store store.Store
	lines *update.Lines
	// clock is used for all waiting.
	clock clock.Clock
	cfg   Config
	tel   observer
	// keeper renews all sessions, and watch wakes all waiters.
	keeper *keeper
	watch  *watcher
	life   *lifecycle
	// holds predicts grants, and inline bounds the calls of Enter that wait for a predicted grant.
	holds  holdTimes
	inline inline
}

// Store keeps the documents of a Locker. [New] makes one on a collection, and package lockcoretest has one in
// memory, for tests. Its methods are not part of this package's interface: no other package can implement it.
type Store interface{ store.Store }

// New returns a Locker on coll. It clones coll with majority, journaled writes and reads from the
// primary, whatever the caller's client uses. It sends nothing to the database; call CreateIndexes once
// per deployment. Once it has used the collection, the Locker checks every few seconds, until Close, whether
// the collection was dropped, restored or cleared. Then all its sessions are lost, and new requests use the
// collection as it is now. The error is an *InvalidError that names the field of cfg.
func New(coll *mongo.Collection, cfg Config) (*Locker, error) {
	if coll == nil {
		return nil, &InvalidError{Field: "coll", Value: "nil", Bound: "a collection"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return NewWithStore(store.New(coll), cfg)
}

// NewWithStore returns a Locker on another store, such as the one in memory of package lockcoretest.
func NewWithStore(s Store, cfg Config) (*Locker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	tel, err := newObserver(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Locker{store: s, clock: clock.Of(s), cfg: cfg, tel: tel, life: newLifecycle()}
	l.lines = update.New(s, l.clock, rules.Settings{ClaimTTL: cfg.ClaimTTL.Milliseconds()})
	l.inline.most.Store(inlineWaits)
	l.keeper = &keeper{locker: l, sessions: map[*Session]bool{}, wake: make(chan struct{}, 1)}
	l.watch = &watcher{locker: l, table: map[string]*watched{}, listeners: map[*listener]bool{}}
	l.lines.Changed, l.lines.PoliciesChanged, l.lines.Wrote = l.collectionChanged, l.watch.pollAll, l.wrote
	l.clock.AfterFunc(identityEvery, l.watchIdentity)
	return l, nil
}

// CreateIndexes creates two indexes: by one the server removes the documents of idle resources, by the
// other the search for deadlocks and Status find resources that are contended. It may be repeated. Without
// them locks work, but documents stay forever, and these searches read all of them. It refuses a collection
// that has documents of another kind with a *LayoutError.
func (l *Locker) CreateIndexes(ctx context.Context) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	return public(l.store.Prepare(ctx))
}

// MissingIndexes returns the name of the collection with its database, and the indexes that CreateIndexes
// would create. An index that exists with another definition is one of them: its name is followed by the
// difference in parentheses, and CreateIndexes fails until it is dropped. It needs the right listIndexes.
// A store in memory misses none.
func (l *Locker) MissingIndexes(ctx context.Context) (collection string, missing []string, err error) {
	if l.life.closed.Err() != nil {
		return "", nil, ErrClosed
	}
	s, ok := l.store.(store.IndexedStore)
	if !ok {
		return "", nil, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	collection, missing, err = s.MissingIndexes(ctx)
	return collection, missing, public(err)
}

// Close ends the Locker. Calls that wait in a queue leave it and return ErrClosed. All sessions end as
// by [Session.Leave], so stop the work that they protect first; those of [Steps.NewStepSession] may end
// later. Then Close waits for the cleanup after requests that gave up, until ctx ends, and for at most
// 20 s. The joined errors name the resources on which cleanup is not complete: locks there end with their
// TTL. A second call does nothing.
func (l *Locker) Close(ctx context.Context) (err error) {
	l.life.once.Do(func() { err = l.close(ctx) })
	return err
}

// counted returns a number with one of two texts, the first for 1.
func counted(n int, one, many string) string {
	if n != 1 {
		one = many
	}
	return fmt.Sprintf("%d %s", n, one)
}

func (l *Locker) close(ctx context.Context) error {
	l.life.begin(ErrClosed)
	var errs []error
	if n := l.life.calls.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %s still under way: %w", counted(n, "call is", "calls are"), context.Cause(ctx)))
	}
	sessions := slices.DeleteFunc(l.keeper.close(), func(s *Session) bool { return s.ofStep != nil })
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	if n := l.life.steps.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %s still running, and their locks end with their TTL: %w", counted(n, "step is", "steps are"), context.Cause(ctx)))
	}
	_ = l.life.calls.wait(ctx) // by which the steps leave
	for _, s := range l.keeper.all() {
		s.end(ErrClosed)
	}
	settle, cancel := l.clock.WithTimeout(ctx, 2*commandTimeout) // one that hangs, and what settles it
	defer cancel()
	for name, calls := range l.lines.WaitForDebts(settle) {
		for _, c := range calls {
			order := Order{}
			switch op := c.Op.(type) {
			case rules.Leave:
				order = orderOf(op.Order)
			case rules.Release:
				order = orderOf(op.Order)
			case rules.TakeBack:
				order = orderOf(op.Order)
			}
			errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: name, Order: order, Err: ErrClosed})
		}
	}
	l.life.end()
	l.lines.Close()
	return errors.Join(errs...)
}

// lifecycle ends a Locker in two steps: once closing ends, no call begins; once closed ends, nothing is
// sent.
type lifecycle struct {
	once            sync.Once
	closing, closed context.Context
	begin           context.CancelCauseFunc
	end             context.CancelFunc
	// calls counts the calls under way that may take a lock, and steps the sessions of steps that have not ended.
	calls, steps group
}

func newLifecycle() *lifecycle {
	l := &lifecycle{calls: group{less: make(chan struct{})}, steps: group{less: make(chan struct{})}}
	l.closing, l.begin = context.WithCancelCause(context.Background())
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// call begins a call that may take a lock. Its context ends when Close begins. The caller must call
// done.
func (l *lifecycle) call(ctx context.Context) (_ context.Context, done func(), err error) {
	ended := l.calls.add()
	if l.closing.Err() != nil {
		ended()
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		ended()
	}, nil
}

// endedByClose adds ErrClosed to an error if Close has ended ctx.
func endedByClose(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// group is a wait group whose wait can be cancelled.
type group struct {
	mu   sync.Mutex
	jobs int
	less chan struct{} // closed when a job has ended
}

func (g *group) add() (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.jobs--
		close(g.less)
		g.less = make(chan struct{})
	}
}

// wait waits until no job is under way or ctx ends, and returns the number of jobs.
func (g *group) wait(ctx context.Context) int {
	for {
		g.mu.Lock()
		jobs, less := g.jobs, g.less
		g.mu.Unlock()
		if jobs == 0 {
			return 0
		}
		select {
		case <-less:
		case <-ctx.Done():
			return jobs
		}
	}
}

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

// From a call to the database: a call becomes an operation of package rules (acquire.go, enter.go, renew.go,
// release.go, verify.go). Locker.do, below, adds it to the line of its resource, in package update, and it is
// answered when a swap that contains it is acknowledged. Acquire, and Enter with MaxWait, leave the operation in
// the line while they wait. The watcher (watch.go) finds the grants of other processes, and park.go serves
// requests that wait without a process. The keeper (keeper.go) renews sessions, and deadlock.go searches for
// cycles of waits and breaks them.

const (
	// commandTimeout bounds one command.
	commandTimeout = update.CommandTimeout
	// cleanupTimeout bounds the commands of the watcher.
	cleanupTimeout = 5 * time.Second
	// undoTimeout bounds the wait of a caller whose request failed for the release of what it may have got.
	// After it, the lines complete the release in the background.
	undoTimeout = time.Second
)

// failure returns the error of an operation, which may have been applied if unknown is set.
func failure(op, resource string, order Order, err error, unknown bool) error {
	err = public(err)
	var layout *LayoutError
	switch {
	case unknown:
		return &UnknownOutcomeError{Op: op, Resource: resource, Order: order, Err: err}
	case errors.Is(err, ErrClosed), errors.As(err, &layout):
		return err
	}
	return fmt.Errorf("lockstep: %s of %q: %w", op, resource, err)
}

// detached returns a context for operations that must run although the caller's context has ended.
func (l *Locker) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.clock.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// bounded returns a context for one command that reads.
func (l *Locker) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := l.clock.WithTimeout(ctx, commandTimeout)
	stop := context.AfterFunc(l.life.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// do carries out an operation. name is for its errors: the database's, ctx's or ErrClosed, and an
// *UnknownOutcomeError if the operation may have been applied.
func (l *Locker) do(ctx context.Context, name string, order Order, c *update.Call) (update.Answer, error) {
	var a update.Answer
	switch {
	case l.life.closed.Err() != nil:
		a.Err = ErrClosed
	case ctx.Err() != nil:
		return a, fmt.Errorf("lockstep: %s of %q was not sent: %w", name, c.Op.ResourceName(), context.Cause(ctx))
	default:
		a = l.lines.Do(ctx, c)
	}
	if a.Err != nil {
		return a, failure(name, c.Op.ResourceName(), order, a.Err, a.Unknown)
	}
	return a, nil
}

// call returns a call of an operation. Its effects are recorded in the trace of ctx, with the reason why.
func (l *Locker) call(ctx context.Context, op rules.Op, why ending) *update.Call {
	return &update.Call{Op: op, OnWrite: func(a update.Answer) { l.record(ctx, &a, why) }}
}

// record records the spans of what an acknowledged write has ended.
func (l *Locker) record(ctx context.Context, a *update.Answer, why ending) {
	ctx = context.WithoutCancel(ctx)
	l.tel.recordEnded(ctx, a, why)
	l.tel.recordHoldGrants(ctx, a)
}

// wrote is called after an acknowledged write of one document. It wakes the waiters that were granted the resource.
func (l *Locker) wrote(answers []update.Answer) {
	all, endedHold := answers[len(answers)-1], false
	for i := range answers {
		endedHold = l.holds.learn(&answers[i]) || endedHold
		if i < len(answers)-1 {
			all.Retried = all.Retried || answers[i].Retried
			all.Ended, all.Holds = slices.Concat(all.Ended, answers[i].Ended), slices.Concat(all.Holds, answers[i].Holds)
		}
	}
	l.watch.onWrite(&all, endedHold)
}

// holdTimes has the average times for which resources were held, from the holds that this Locker has
// ended: a moving average with a weight of an eighth. It predicts grants, so that a request waits in its
// slot if a grant is near, and parked requests are woken ahead of their grant. The estimate affects
// latency only, so resources may share an average, by a hash of their names.
type holdTimes [1 << 12]atomic.Int64 // milliseconds; 0 is unknown

func (h *holdTimes) of(resource string) *atomic.Int64 {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}

// learn adds the hold that an operation has ended, and reports whether there was one.
func (h *holdTimes) learn(a *update.Answer) bool {
	ended := a.HoldsEnded(a.After)
	if len(ended) == 0 {
		return false
	}
	took, average := max(1, a.After.At.Sub(*ended[0].CreatedAt).Milliseconds()), h.of(a.After.ID)
	if old := average.Load(); old > 0 {
		took = max(1, (7*old+took)/8)
	}
	average.Store(took)
	return true
}

// predict returns the time until a request at a position of the queue is granted the resource; 0 if
// nothing is known.
func (h *holdTimes) predict(resource string, position int, limit int64) time.Duration {
	return afterHolds(time.Duration(h.of(resource).Load())*time.Millisecond, position, limit)
}

// expect is like predict for the pauses between polls. Until a hold has been observed, it expects short ones, so
// that many that begin to wait at once do not find each grant a long pause late.
func (h *holdTimes) expect(resource string, position int, limit int64) time.Duration {
	return cmp.Or(h.predict(resource, position, limit), afterHolds(pace.UnknownHold, position, limit))
}

// afterHolds returns the time until a position of the queue is granted, if each hold lasts equally long.
func afterHolds(each time.Duration, position int, limit int64) time.Duration {
	atOnce := max(1, int(min(limit, rules.Crowd)))
	return each * time.Duration((position+atOnce-1)/atOnce)
}

// readMajority reads documents as a majority of the servers has them. The error is about the command; one
// about a single document is in Damaged.
func (l *Locker) readMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	if l.life.closed.Err() != nil {
		return store.Loaded{}, ErrClosed
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	sent := clock.Now()
	loaded, err := l.store.LoadMajority(ctx, names...)
	if err != nil {
		return store.Loaded{}, fmt.Errorf("lockstep: read lock documents: %w", public(err))
	}
	l.lines.Learn(loaded.At, sent)
	return loaded, nil
}

// inParallel calls do with 0 to n-1, a few at a time.
func inParallel(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var calls errgroup.Group
	calls.SetLimit(16)
	for i := range n {
		calls.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = calls.Wait()
}

// readOne returns the document of a resource, or nil if there is none.
func (l *Locker) readOne(ctx context.Context, resource string) (*rules.Document, error) {
	loaded, err := l.readMajority(ctx, resource)
	return loaded.Docs[resource], cmp.Or(err, public(loaded.Damaged[resource]))
}
