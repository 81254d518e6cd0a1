package update

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// elapse waits in virtual time.
func elapse(d time.Duration) { <-time.After(d) }

// farStore is a store whose answers take a round trip, with a jitter.
type farStore struct {
	store.Store
	trip time.Duration
}

func (s farStore) half() { elapse(s.trip/2 + rand.N(time.Millisecond)) }

func (s farStore) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	s.half()
	defer s.half()
	return s.Store.Load(ctx, names...)
}

func (s farStore) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	s.half()
	defer s.half()
	return s.Store.Swap(ctx, swaps...)
}

func (s farStore) Extend(ctx context.Context, parts []store.Extension) (map[string]bool, string, error) {
	s.half()
	defer s.half()
	return s.Store.Extend(ctx, parts)
}

func (s farStore) Reserve(ctx context.Context, name string, r rules.Reservation) error {
	s.half()
	defer s.half()
	return s.Store.Reserve(ctx, name, r)
}

// busyDocument is a document with a holder for each of n processes, in virtual time.
type busyDocument struct {
	db   *store.Memory
	wg   sync.WaitGroup
	stop chan struct{}
}

func newBusyDocument(t *testing.T, holders int) *busyDocument {
	b := &busyDocument{db: store.NewMemory(time.Now), stop: make(chan struct{})}
	first := b.process(time.Millisecond)
	defer first.Close()
	for i := range holders {
		require.NoError(t, first.Do(t.Context(), &Call{Op: sharedBy(fmt.Sprint("holder/", i))}).Err)
	}
	return b
}

func (b *busyDocument) process(trip time.Duration) *Lines {
	return New(farStore{b.db, trip}, clock.Real{}, rules.Settings{ClaimTTL: 1000})
}

func sharedBy(lockID string) rules.Acquire {
	return rules.Acquire{Resource: "r", Call: lockID, Caller: rules.Caller{LockID: lockID, Part: "p", Order: 1}, Mode: rules.Shared, TTL: 30_000}
}

// repeat calls do in a process with a round trip again and again, until end.
func (b *busyDocument) repeat(trip time.Duration, do func(*Lines)) *Lines {
	ls := b.process(trip)
	b.wg.Go(func() {
		for {
			select {
			case <-b.stop:
				ls.Close()
				return
			default:
				do(ls)
			}
		}
	})
	return ls
}

func (b *busyDocument) end() {
	close(b.stop)
	b.wg.Wait()
}

// renewing extends the entry of a holder without a pause.
func renewing(i int, yields bool) func(*Lines) {
	return func(ls *Lines) {
		now := time.Now()
		_, _ = ls.Extend(context.Background(), []store.Extension{
			{Resource: "r", ID: fmt.Sprint("holder/", i), End: now.Add(30 * time.Second), At: now, IdleAt: now.Add(time.Hour), Yields: yields},
		})
	}
}

// requireWithin requires that an operation of a process is carried out.
func requireWithin(t *testing.T, ls *Lines, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	require.NoError(t, ls.Do(ctx, &Call{Op: sharedBy("other")}).Err)
	t.Logf("after %v", time.Since(began))
}

// Renewals of ten processes follow each other so fast that there is always one between a read and the swap that
// is based on it.
func TestLines_RenewalsOfOtherProcesses_LetSwapsSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBusyDocument(t, 10)
		for i := range 10 {
			b.repeat(5*time.Millisecond, renewing(i, true))
		}
		other := b.process(5 * time.Millisecond)
		defer other.Close()
		requireWithin(t, other, 2*time.Second)
		b.end()
	})
}

// Renewals of the process itself make it drop what it reads.
func TestLines_RenewalsOfOwnProcess_LetSwapsSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBusyDocument(t, 1)
		ls := b.repeat(5*time.Millisecond, renewing(0, true))
		requireWithin(t, ls, 2*time.Second)
		b.end()
	})
}

// A process far away conflicts with each write of others. No answer is close enough to date a lease by it. It needs four conflicts
// before it reserves the document, and may find it reserved by a process nearby some times in a row: with a round trip of 1 s each
// attempt takes 3 s.
func TestLines_FarProcess_GetsItsTurn(t *testing.T) {
	t.Parallel()
	for _, trip := range []int{50, 240, 300, 600, 1000} {
		t.Run(fmt.Sprint(trip, " ms"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBusyDocument(t, 0)
				for i := range 3 {
					b.repeat(2*time.Millisecond, func(ls *Lines) {
						_ = ls.Do(context.Background(), &Call{Op: sharedBy(fmt.Sprint("near/", i))})
					})
				}
				far := b.process(time.Duration(trip) * time.Millisecond)
				defer far.Close()
				requireWithin(t, far, time.Minute)
				b.end()
			})
		})
	}
}

// An Extend that has an answer must not send a statement for each caller: they would fill the server's queue.
func TestLines_ExtensionsOfOneDocument_ShareStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBusyDocument(t, 100)
		counted := &countingStore{Store: farStore{b.db, 10 * time.Millisecond}}
		ls := New(counted, clock.Real{}, rules.Settings{ClaimTTL: 1000})
		defer ls.Close()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				renewing(i, true)(ls)
			})
		}
		all.Wait()
		require.LessOrEqual(t, counted.extends, 7)
		d, _ := b.db.Document("r")
		for _, e := range d.Entries {
			require.NotNil(t, e.RenewedAt, e.ID)
		}
	})
}

type countingStore struct {
	store.Store
	mu      sync.Mutex
	extends int
}

func (s *countingStore) Extend(ctx context.Context, parts []store.Extension) (map[string]bool, string, error) {
	s.mu.Lock()
	s.extends++
	s.mu.Unlock()
	return s.Store.Extend(ctx, parts)
}

func TestServerClock_Reservation_LastsFourRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c serverClock
		require.Zero(t, c.reservation("p").Until)
		for trip, want := range map[time.Duration]time.Duration{
			10 * time.Millisecond: time.Second, 240 * time.Millisecond: time.Second, 300 * time.Millisecond: 1200 * time.Millisecond,
			time.Second: 3 * time.Second, 8 * time.Second: 3 * time.Second,
		} {
			c.forget()
			sent := time.Now()
			at := sent.Add(trip/2 - time.Hour) // the server's clock is an hour behind
			elapse(trip)
			c.learn(at, sent, time.Now())
			elapse(2 * time.Second)
			require.Equal(t, time.Now().Add(want-time.Hour), c.reservation("p").Until, "%v", trip)
		}
		now := time.Now()
		c.learn(now, now, now)
		c.learn(now, now.Add(-8*time.Second), now) // one slow answer of a server that is near
		require.Equal(t, now.Add(time.Second), c.reservation("p").Until)
		elapse(time.Minute)
		require.Zero(t, c.reservation("p").Until, "what was known is too old")
		c.learn(now, now, now)
		c.forget()
		require.Zero(t, c.reservation("p").Until)
	})
}

// A lease that is dated by a slow answer would have ended when it is granted.
func TestServerClock_SlowAnswer_DatesNoLease(t *testing.T) {
	t.Parallel()
	var c serverClock
	now := time.Now()
	c.learn(now, now.Add(-8*time.Second), now)
	require.Zero(t, c.guess())
	require.NotZero(t, c.reservation("p").Until)
	c.learn(now, now.Add(-10*time.Millisecond), now)
	c.learn(now.Add(-time.Hour), now.Add(-8*time.Second), now)
	require.WithinDuration(t, now, c.guess().At, 5*time.Second)
}

// loadedLine returns a line that has read a document with entries.
func loadedLine(entries int) *Line {
	d := &rules.Document{ID: "r", Version: rules.Version{N: 1, R: "r"}}
	for i := range entries {
		d.Entries = append(d.Entries, rules.Entry{
			ID: fmt.Sprint(i), Caller: rules.Caller{LockID: fmt.Sprint(i), Part: "p", Order: 1}, Mode: rules.Shared, State: rules.StateRunning, TTL: 30_000, ExpiresAt: at(30),
		})
	}
	l := &Line{Name: "r", Process: "this"}
	l.doc = d
	return l
}

// load lets the line read its document at the tick 0.
func (l *Line) load(t *testing.T) {
	d := l.doc
	l.Handle(Outdated{})
	require.Equal(t, StepLoad, l.Next(Now{}, "x").Kind)
	l.Handle(Loaded{d, Now{At: at(0), Sent: at(0)}})
}

func TestLine_CallThatIsFirst_IsAppliedFirst(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	leave := &Call{Op: rules.Leave{Resource: "r", Caller: rules.Caller{LockID: "0", Part: "p", Order: 1}}}
	renewal := &Call{Op: rules.RenewParts{Resource: "r", Parts: map[rules.PartID]bool{{LockID: "0", Part: "p", Order: 1}: true}}, First: true}
	l.Handle(Joined{leave})
	l.Handle(Joined{renewal})
	l.load(t)
	step := l.Next(Now{}, "x")
	require.Equal(t, StepSwap, step.Kind)
	require.Same(t, renewal, step.Replies[0].Call)
	require.NotNil(t, step.Replies[0].After.Part(rules.Caller{LockID: "0", Part: "p", Order: 1}).RenewedAt)
	require.Same(t, leave, step.Replies[1].Call)
}

func TestLine_ReservedDocument_DelaysAllButUrgentCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		urgent time.Time
		want   StepKind
	}{"never urgent": {time.Time{}, StepPause}, "not yet": {at(1), StepPause}, "urgent": {at(0), StepSwap}} {
		l := loadedLine(1)
		l.doc.Reserved = &rules.Reservation{By: "other", Until: at(2)}
		l.Handle(Joined{&Call{Op: rules.Renew{Resource: "r", Caller: rules.Caller{LockID: "0", Part: "p", Order: 1}}, Urgent: c.urgent}})
		l.load(t)
		step := l.Next(Now{}, "x")
		require.Equal(t, c.want, step.Kind, name)
		if step.Kind == StepSwap {
			require.NotNil(t, step.Swap.Next.Reserved, "it is not this process's to end")
		}
	}
}

// A document that the watcher has read counts, too: a process that polls would never let another one go first.
func TestLine_OfferedDocumentIsReserved_Pauses(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	d := l.doc
	d.At, d.Reserved = at(0), &rules.Reservation{By: "other", Until: at(2)}
	l.Handle(Outdated{})
	l.Handle(Offered{d})
	l.Handle(Joined{&Call{Op: rules.Renew{Resource: "r", Caller: rules.Caller{LockID: "0", Part: "p", Order: 1}}}})
	now := Now{At: at(0), Sent: at(0)}
	step := l.Next(now, "x")
	require.Equal(t, StepPause, step.Kind)
	require.Equal(t, ReservedPause, step.Pause)
	require.Equal(t, StepLoad, l.Next(now, "x").Kind)
}

// Hundreds of requests for a document with thousands of entries are spread over several swaps, so that renewals
// need not wait for all of them.
func TestLine_ManyCallsOnALargeDocument_ShareSeveralSwaps(t *testing.T) {
	t.Parallel()
	for entries, most := range map[int]int{4000: 60, 100: 100} {
		l := loadedLine(entries)
		for i := range 100 {
			l.Handle(Joined{&Call{Op: rules.Renew{Resource: "r", Caller: rules.Caller{LockID: fmt.Sprint(i), Part: "p", Order: 1}}}})
		}
		applied := 0
		for swaps := 0; l.hasWork(); swaps++ {
			l.load(t)
			step := l.Next(Now{}, fmt.Sprint("x", swaps))
			require.Equal(t, StepSwap, step.Kind)
			require.LessOrEqual(t, len(step.Replies), most)
			for _, r := range l.Handle(Swapped{}) {
				require.Equal(t, rules.Granted, r.Outcome)
				applied++
			}
		}
		require.Equal(t, 100, applied)
	}
}

// Hundreds of requests that gave up are taken back over several swaps, too, and renewals go ahead of them.
func TestLine_ManyOwedCalls_ShareSeveralSwaps(t *testing.T) {
	t.Parallel()
	l := loadedLine(4000)
	for i := range 100 {
		back := rules.TakeBack{Resource: "r", Caller: rules.Caller{LockID: fmt.Sprint("gone/", i), Part: "p", Order: 1}, Call: fmt.Sprint(i)}
		c := &Call{Op: back, Owed: true}
		l.Handle(Joined{c})
		l.Handle(Abandoned{c})
	}
	renewal := &Call{Op: rules.RenewParts{Resource: "r", Parts: map[rules.PartID]bool{{LockID: "0", Part: "p", Order: 1}: true}}, First: true}
	l.Handle(Joined{renewal})
	for paid := -1; paid < 100; {
		l.load(t)
		step := l.Next(Now{}, fmt.Sprint("x", paid))
		require.Equal(t, StepSwap, step.Kind)
		require.Equal(t, paid < 0, step.Replies[0].Call == renewal)
		require.LessOrEqual(t, len(step.Replies), 60)
		paid += len(l.Handle(Swapped{}))
	}
	require.False(t, l.debt)
}

// A call that arrives after a read is dated by what is known then, not by that read.
func TestLine_OldRead_DatesNoLaterCall(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	l.Handle(Loaded{l.doc, Now{At: at(0), Sent: at(0)}})
	require.Equal(t, StepIdle, l.Next(Now{}, "x").Kind)
	l.Handle(Joined{&Call{Op: rules.Renew{Resource: "r", Caller: rules.Caller{LockID: "0", Part: "p", Order: 1}}}})
	step := l.Next(Now{At: at(9), Sent: at(9)}, "x")
	require.Equal(t, StepSwap, step.Kind)
	require.Equal(t, at(9), step.Replies[0].Sent)
}

// A request that has queued stays in the line if its waiter is gone and the queue is full when it asks again.
func TestLine_QueueIsFullLater_CallStays(t *testing.T) {
	t.Parallel()
	l, c := queuedLine(t)
	l.Handle(Woken{c})
	without := l.doc.Clone()
	without.Waiters = []rules.Waiter{{Caller: rules.Caller{LockID: "b", Part: "p", Order: 1}, Mode: rules.Exclusive, Since: at(1), ExpiresAt: at(60), OverdueAt: at(60)}}
	l.doc = without
	l.load(t)
	step := l.Next(Now{}, "x")
	require.Equal(t, StepReply, step.Kind)
	require.Equal(t, rules.Full, step.Replies[0].Outcome)
	require.True(t, l.Sleeps())
}

// leaveOfHolder ends the hold of the holder in a queuedLine.
var leaveOfHolder = rules.Leave{Resource: "r", Caller: rules.Caller{LockID: "0", Part: "p", Order: 1}}

// queuedLine returns a line in which a call sleeps in the queue behind a holder.
func queuedLine(t *testing.T) (l *Line, sleeper *Call) {
	t.Helper()
	l = loadedLine(1)
	l.Settings = rules.Settings{ClaimTTL: 1000}
	l.doc.Entries[0].Mode = rules.Exclusive
	sleeper = &Call{Sleeps: true, Op: rules.Acquire{
		Resource: "r", Call: "c", Caller: rules.Caller{LockID: "a", Part: "p", Order: 1}, Mode: rules.Exclusive, TTL: 30_000, Queue: true, WaiterTTL: 60_000, MaxWaiters: 1,
	}}
	l.Handle(Joined{sleeper})
	l.load(t)
	require.Equal(t, StepSwap, l.Next(Now{}, "x").Kind)
	require.Equal(t, rules.Queued, l.Handle(Swapped{})[0].Outcome)
	return l, sleeper
}

// A sleeping call that a swap would have granted is applied again if the swap met another version, in which it is not granted. Giving up
// then leaves nothing unknown.
func TestLine_SleepingCallMeetsAConflict_IsAppliedAgain(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]Event{"conflict": Conflicted{}, "skipped": Conflicted{Before: true}} {
		l, sleeper := queuedLine(t)
		behind := l.doc
		l.Handle(Joined{&Call{Op: leaveOfHolder}})
		l.load(t)
		require.Len(t, l.Next(Now{}, "y").Replies, 2, name)
		l.Handle(refused)
		l.calls = l.calls[:1] // another process has ended the hold, and another party holds
		l.doc = behind
		l.load(t)
		require.Same(t, sleeper, l.Next(Now{}, "z").Replies[0].Call, name)
		require.True(t, l.InFlight(sleeper))
		require.Equal(t, rules.Queued, l.Handle(Swapped{})[0].Outcome, name)
		require.False(t, l.Owes(sleeper), name)
	}
}

// An acknowledged swap settles what lost ones have left open, also for calls that it does not contain.
func TestLine_SwapAfterALostOne_LeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	l, sleeper := queuedLine(t)
	behind := l.doc
	l.Handle(Joined{&Call{Op: leaveOfHolder}})
	l.load(t)
	require.Len(t, l.Next(Now{}, "y").Replies, 2)
	l.Handle(Failed{errors.New("the answer was lost")})
	require.Equal(t, StepPause, l.Next(Now{}, "y").Kind)
	l.calls, l.doc = l.calls[:1], behind
	l.load(t)
	require.Empty(t, l.Next(Now{}, "z").Replies)
	l.Handle(Swapped{})
	require.False(t, l.Owes(sleeper))
}

// A caller gives up while the swap that carries out what it owes is on its way. Nothing is left to be done.
func TestLine_OwedCallIsWrittenAfterItWasAbandoned_OwesNothing(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	c := &Call{Op: leaveOfHolder, Owed: true}
	l.Handle(Joined{c})
	l.load(t)
	require.Equal(t, StepSwap, l.Next(Now{}, "x").Kind)
	l.Handle(Abandoned{c})
	require.True(t, l.debt)
	replies := l.Handle(Swapped{})
	require.Same(t, c, replies[0].Call)
	require.True(t, replies[0].Abandoned)
	require.Equal(t, StepIdle, l.Next(Now{}, "y").Kind)
}

// The lost swaps may have been applied, and may have granted the resource to others. Their answers were lost, so the answer
// that pays the debt must wake these.
func TestLine_DebtIsPaid_AnswerIsRetried(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	c := &Call{Op: leaveOfHolder, Owed: true}
	l.Handle(Joined{c})
	for range mostTries {
		l.load(t)
		require.Equal(t, StepSwap, l.Next(Now{}, "x").Kind)
		l.Handle(Failed{errLost})
		l.Handle(Resumed{})
	}
	require.Empty(t, l.calls, "its caller has got the error")
	l.load(t)
	require.Equal(t, StepSwap, l.Next(Now{}, "x").Kind)
	replies := l.Handle(Swapped{})
	require.Same(t, c, replies[0].Call)
	require.True(t, replies[0].Abandoned)
	require.True(t, replies[0].Retried && replies[0].Lost)
	require.Equal(t, StepIdle, l.Next(Now{}, "x").Kind)
}

// A debt that cannot be paid is left for later, and so is it after each further attempt. A call that arrives in between does not
// shorten the pause: in an outage, each of many calls would send a command at once.
func TestLine_DebtFailsRepeatedly_IsLeftForLater(t *testing.T) {
	t.Parallel()
	l := loadedLine(1)
	fail := func() {
		require.Equal(t, StepLoad, l.Next(Now{}, "x").Kind)
		l.Handle(Failed{errLost})
	}
	c := &Call{Op: leaveOfHolder, Owed: true}
	l.Handle(Joined{c})
	l.Handle(Abandoned{c})
	fail()
	require.Equal(t, Step{Kind: StepPause, Pause: FailurePause, Failures: 1}, l.Next(Now{}, "x"))
	fail()
	for range 2 {
		require.Equal(t, StepOwe, l.Next(Now{}, "x").Kind)
		l.Handle(Resumed{})
		fail()
	}
	require.Equal(t, StepOwe, l.Next(Now{}, "x").Kind)
	l.Handle(Joined{&Call{Op: leaveOfHolder}})
	require.Equal(t, Step{Kind: StepPause, Pause: FailurePause, Failures: 2}, l.Next(Now{}, "x"))
	fail()
	require.Equal(t, Step{Kind: StepPause, Pause: FailurePause, Failures: 3}, l.Next(Now{}, "x"))
}

// A busy line must not carry out a call of several that is about to be taken back: its request would lose its position.
func TestLines_DoWhile_LeavesBusyLinesAlone(t *testing.T) {
	t.Parallel()
	ls := New(store.NewMemory(time.Now), clock.Real{}, rules.Settings{ClaimTTL: 1000})
	defer ls.Close()
	ls.mu.Lock()
	busy := ls.use("r")
	busy.running = true
	ls.mu.Unlock()
	answers, refused, unseen := ls.DoWhile(t.Context(), []*Call{{Op: sharedBy("a")}}, func(Answer) bool { return true })
	require.Empty(t, answers)
	require.Nil(t, refused)
	require.NoError(t, unseen)
	require.Empty(t, busy.wake, "it was given a call")
}
