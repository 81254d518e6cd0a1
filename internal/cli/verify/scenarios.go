package verify

import (
	"context"
	"fmt"
	"runtime"
	"sync"

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
	go func() {
		defer close(next)
		for _, s := range all {
			next <- s
		}
	}()
	inParallel(atOnce, func(int) {
		for s := range next {
			failed := play(s, h)
			mu.Lock()
			found.count++
			if failed != "" && found.seen == "" {
				found.seen = fmt.Sprintf("scenario %q: %s", s.Name, failed)
			}
			mu.Unlock()
		}
	})
	return found, nil
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
