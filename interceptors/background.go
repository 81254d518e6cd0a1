package interceptors

import (
	"context"
	"sync"
)

// background counts what goes on in the background, and waits for its end.
type background struct {
	mu sync.Mutex
	n  int
	// idle, unless it is nil, is closed when n becomes 0.
	idle chan struct{}
}

// begin reports whether one more may begin, of which there are at most most. Then end must be called.
func (b *background) begin(most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= most {
		return false
	}
	b.n++
	return true
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait blocks until nothing goes on, or ctx ends.
func (b *background) wait(ctx context.Context) {
	b.mu.Lock()
	if b.n == 0 {
		b.mu.Unlock()
		return
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-idle:
	}
}
