package lockcore

import "context"

// EndSessions ends what a test has left to itself, without a word to the engine.
func (l *Locker) EndSessions() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx)
}

// Tended is how many resources are tended.
func (l *Locker) Tended() int {
	l.turns.mu.Lock()
	defer l.turns.mu.Unlock()
	return len(l.turns.tended)
}

// Reading is how many wait for a read that they share.
func (l *Locker) Reading() int {
	l.reads.mu.Lock()
	defer l.reads.mu.Unlock()
	return l.reads.waiting
}
