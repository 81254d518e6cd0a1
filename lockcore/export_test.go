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
