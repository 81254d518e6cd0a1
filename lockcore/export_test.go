package lockcore

// EndSessions ends what a test has left to itself, without a word to the engine.
func (l *Locker) EndSessions() {
	l.keeper.mu.Lock()
	var all []*Session
	for s := range l.keeper.sessions {
		all = append(all, s)
	}
	l.keeper.mu.Unlock()
	for _, s := range all {
		s.end()
	}
}

// Tended is how many resources are tended.
func (l *Locker) Tended() int {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	n := 0
	for _, r := range l.watch.table {
		if r.parked {
			n++
		}
	}
	return n
}

// Remembered reports whether a read is kept for others to share.
func (l *Locker) Remembered() bool {
	l.watch.reads.mu.Lock()
	defer l.watch.reads.mu.Unlock()
	return l.watch.reads.last != nil
}
