package stack

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// repeatEvery is the time between two lines about a task that runs. Minutes without output look like a hang.
const repeatEvery = 15 * time.Second

// Progress prints what a stack is doing.
type Progress struct {
	mu  sync.Mutex
	out io.Writer
}

// NewProgress returns a Progress that writes to out.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out} }

// Printf writes one line.
func (p *Progress) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// run calls f. It prints the name of the task before, the elapsed time while f runs, and the result.
func (p *Progress) run(name string, f func() error) error {
	p.Printf("%s ...", name)
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- f() }()
	tick := time.NewTicker(repeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Printf("  %s: %s", name, elapsed(began))
		case err := <-done:
			outcome := "done"
			if err != nil {
				outcome = "failed"
			}
			p.Printf("%s: %s after %s", name, outcome, elapsed(began))
			return err
		}
	}
}

func elapsed(began time.Time) time.Duration {
	d := time.Since(began)
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Second)
}
