package lockcore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// keeper renews the leases of all sessions of a Locker, together if they come due together. Its
// goroutine runs while there are sessions.
type keeper struct {
	locker *Locker

	mu       sync.Mutex
	sessions map[*Session]bool
	// renewing are the sessions whose renewal is under way.
	renewing map[*Session]bool
	running  bool
	closed   bool
	// next is when the keeper looks again.
	next time.Time
	wake chan struct{}
}

func newKeeper(l *Locker) *keeper {
	return &keeper{locker: l, sessions: map[*Session]bool{}, renewing: map[*Session]bool{}, wake: make(chan struct{}, 1)}
}

// add reports whether the Locker still renews.
func (k *keeper) add(s *Session) bool {
	due, _ := s.due()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return false
	}
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
	return true
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

// close takes no more sessions, and returns those that are to be ended.
func (k *keeper) close() []*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return slices.Collect(maps.Keys(k.sessions))
}

// poke makes the keeper look again at what is due.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run renews what is due until there are no sessions; then no session needs the answers of what is
// under way.
func (k *keeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := k.locker.clock.NewTimer(keeperPause)
	defer timer.Stop()
	for {
		now := time.Now()
		next, any := k.look(now)
		if !any {
			return
		}
		if len(next.due) > 0 {
			go k.renew(ctx, next.due)
		}
		for _, s := range next.over {
			s.expire(now)
		}
		timer.Reset(next.pause)
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// keeperPause is the longest pause between two looks: a timer stands still while the machine is
// suspended.
const keeperPause = time.Second

// outlook is what a keeper finds to do.
type outlook struct {
	// due are the sessions to renew now, and over those that can be trusted no more.
	due, over []*Session
	// pause is how long nothing else needs to be done.
	pause time.Duration
}

// look says what to do now, and reports whether any session is left. If one is due, all that are
// nearly so are renewed with it.
func (k *keeper) look(now time.Time) (found outlook, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sessions) == 0 {
		k.running = false
		return found, false
	}
	found.pause = keeperPause
	sooner := func(at time.Time) { found.pause = min(found.pause, max(-elapsed(at, now), time.Millisecond)) }
	var near []*Session
	for s := range k.sessions {
		next, trusted := s.due()
		switch {
		case trusted.IsZero(): // it holds nothing
			continue
		case over(trusted, now):
			found.over = append(found.over, s)
			sooner(now) // what replaces the lease in this moment is looked at then
			continue
		}
		sooner(trusted)
		switch {
		case k.renewing[s]:
		case over(next, now):
			found.due = append(found.due, s)
		case -elapsed(next, now) < s.slack():
			near = append(near, s)
			sooner(next)
		default:
			sooner(next)
		}
	}
	k.next = now.Add(found.pause)
	if len(found.due) > 0 {
		found.due = append(found.due, near...)
	}
	for _, s := range found.due {
		k.renewing[s] = true
	}
	return found, true
}

// renew renews the leases of sessions, and gives each session its answers as they come.
func (k *keeper) renew(ctx context.Context, sessions []*Session) {
	now := time.Now()
	within := time.Duration(0)
	var leases []Lease
	var of []*Session
	for _, s := range sessions {
		// The longest trust bounds the commands: a session that cannot trust that long is told in
		// time all the same.
		_, trusted := s.due()
		within = max(within, min(trusted.Sub(now), commandTimeout))
		mine := s.beginRenewal(now)
		for _, lease := range mine {
			leases, of = append(leases, lease), append(of, s)
		}
		if len(mine) == 0 { // it ended meanwhile
			k.renewed(s)
		}
	}
	ctx, cancel := k.locker.clock.WithTimeout(ctx, within)
	defer cancel()
	k.locker.renewAll(ctx, within/2, leases, func(i int, r renewResult) {
		if of[i].apply(r) {
			k.renewed(of[i])
		}
	})
	k.poke()
}

// renewed notes that a session has its answers.
func (k *keeper) renewed(s *Session) {
	k.mu.Lock()
	delete(k.renewing, s)
	k.mu.Unlock()
}
