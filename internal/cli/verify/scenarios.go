package verify

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

// atOnce is the number of scenarios that run at the same time.
const atOnce = 16

// scenarios is a check: it plays all scenarios of the rules, each on a resource of its own.
func (r *run) scenarios(ctx context.Context, _ uint64) (outcome, error) {
	h := scenarios.NewLines(ctx, r.store)
	defer h.Close()
	all := scenarios.All()
	next := make(chan scenarios.Scenario)
	var mu sync.Mutex
	var found outcome
	var err error
	go func() {
		defer close(next)
		for _, s := range all {
			next <- s
		}
	}()
	harness.InParallel(atOnce, func(int) {
		for s := range next {
			mu.Lock()
			over := found.seen != "" || err != nil
			mu.Unlock()
			if over {
				continue // the first is enough
			}
			watched := &watched{Harness: h}
			failed := play(s, watched)
			mu.Lock()
			found.count++
			switch {
			case failed == "":
			case watched.err != nil:
				err = watched.err
			case found.seen == "":
				found.seen = fmt.Sprintf("scenario %q: %s", s.Name, failed)
			}
			mu.Unlock()
		}
	})
	if found.seen != "" {
		err = nil
	}
	return found, err
}

// watched is a harness that keeps its error, which is not a failure of a scenario.
type watched struct {
	scenarios.Harness
	err error
}

// Apply applies an operation.
func (w *watched) Apply(op rules.Op) (*rules.Document, rules.Result, error) {
	d, result, err := w.Harness.Apply(op)
	w.err = cmp.Or(w.err, err)
	return d, result, err
}

// Stored returns a document.
func (w *watched) Stored(resource string) (*rules.Document, error) {
	d, err := w.Harness.Stored(resource)
	w.err = cmp.Or(w.err, err)
	return d, err
}

// Travel lets time pass.
func (w *watched) Travel(base, resource string, d time.Duration) error {
	err := w.Harness.Travel(base, resource, d)
	w.err = cmp.Or(w.err, err)
	return err
}

// play plays a scenario in a goroutine of its own, which a failure ends, and returns the failure.
func play(s scenarios.Scenario, h scenarios.Harness) string {
	t := &failure{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(t, h, "scenarios/"+s.Name)
	}()
	<-done
	return t.text
}

// failure is the failure of a scenario, if it has failed.
type failure struct{ text string }

// Helper does nothing.
func (*failure) Helper() {}

// Fatalf records the failure and ends the goroutine.
func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
