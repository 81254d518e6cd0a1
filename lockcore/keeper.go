package lockcore

import (
	"context"
	"sync"
	"time"
)

// keeper renews the leases of all sessions of a Locker, together where they come due together. Its goroutine runs
// while there are sessions.
type keeper struct {
	locker *Locker

	mu       sync.Mutex
	sessions map[*Session]bool
	// renewing are the sessions whose renewal is under way.
	renewing map[*Session]bool
	running  bool
	// next is when the keeper looks again.
	next time.Time
	wake chan struct{}
}

func newKeeper(l *Locker) *keeper {
	return &keeper{locker: l, sessions: map[*Session]bool{}, renewing: map[*Session]bool{}, wake: make(chan struct{}, 1)}
}

func (k *keeper) add(s *Session) {
	due, _ := s.due()
	k.mu.Lock()
	k.sessions[s] = true
	start := !k.running
	k.running = true
	sooner := due.Before(k.next)
	k.mu.Unlock()
	switch {
	case start:
		go k.run()
	case sooner: // a look goes through all sessions, so there is none for each that is added
		k.poke()
	}
}

func (k *keeper) remove(s *Session) {
	k.mu.Lock()
	delete(k.sessions, s)
	last := len(k.sessions) == 0
	k.mu.Unlock()
	if last {
		k.poke()
	}
}

// poke makes the keeper look again at what is due.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run renews what is due until there are no sessions; then nobody needs the answers of what is under way.
func (k *keeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := k.locker.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait, any := k.look(time.Now())
		if !any {
			return
		}
		if len(due) > 0 {
			go k.renew(ctx, due)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// look expires what cannot be trusted any more, and takes out the sessions to renew now: where one is due, all that
// are nearly so. It tells how long nothing needs to be done, and whether any session is left.
func (k *keeper) look(now time.Time) (due []*Session, wait time.Duration, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sessions) == 0 {
		k.running = false
		return nil, 0, false
	}
	wait = time.Hour
	sooner := func(at time.Time) { wait = min(wait, max(at.Sub(now), time.Millisecond)) }
	var near []*Session
	for s := range k.sessions {
		next, trusted := s.due()
		if !trusted.IsZero() {
			if !now.Before(trusted) {
				// Not under this lock: it removes the session.
				go s.expire()
				continue
			}
			sooner(trusted)
		}
		switch {
		case k.renewing[s]:
		case !now.Before(next):
			due = append(due, s)
		case next.Sub(now) < s.slack():
			near = append(near, s)
			sooner(next)
		default:
			sooner(next)
		}
	}
	k.next = now.Add(wait)
	if len(due) == 0 {
		return nil, wait, true
	}
	due = append(due, near...)
	for _, s := range due {
		k.renewing[s] = true
	}
	return due, wait, true
}

// renew renews the leases of sessions, and gives each session its answers as they come.
func (k *keeper) renew(ctx context.Context, sessions []*Session) {
	now := time.Now()
	until := now
	var leases []Lease
	var of []*Session
	unanswered := map[*Session]int{}
	for _, s := range sessions {
		// The longest trust bounds the command: whoever cannot trust that long is told in time all the same.
		if _, trusted := s.due(); trusted.After(until) {
			until = trusted
		}
		s.began(now)
		for _, lease := range s.Leases() {
			leases, of = append(leases, lease), append(of, s)
			unanswered[s]++
		}
		if unanswered[s] == 0 { // ended meanwhile
			k.renewed(s)
		}
	}
	if latest := now.Add(renewWithin); until.Equal(now) || latest.Before(until) {
		until = latest
	}
	ctx, cancel := k.locker.clock.WithTimeout(ctx, until.Sub(now))
	defer cancel()
	k.locker.renewAll(ctx, leases, func(i int, r renewal) {
		s := of[i]
		s.answer(r.lease, r.err)
		if unanswered[s]--; unanswered[s] == 0 {
			k.renewed(s)
		}
	})
	k.poke()
}

// renewWithin bounds one renewal: the next try may find a better server.
const renewWithin = 10 * time.Second

// renewed notes that a session has its answers.
func (k *keeper) renewed(s *Session) {
	s.answered()
	k.mu.Lock()
	delete(k.renewing, s)
	k.mu.Unlock()
}
