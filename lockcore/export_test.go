package lockcore

import "context"

// EndSessions ends what a test has left to itself, without a word to the engine.
func (l *Steps) EndSessions() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx)
}

// Tended returns the number of resources that are tended.
func (l *Steps) Tended() int {
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

// ReadMajority reads documents as a majority of the servers has them.
func (l *Steps) ReadMajority(ctx context.Context, names ...string) error {
	_, err := l.readMajority(ctx, names...)
	return err
}
