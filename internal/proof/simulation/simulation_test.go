package simulation

import (
	"flag"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Uint64("seeds", 100, "how many seeds to play, and a fourth of them with workflows")
	from  = flag.Uint64("from", 1, "the first seed")
	times = flag.Uint64("times", 1, "how often to play each seed; above 1, how often each fails is counted")
)

func TestSimulation(t *testing.T) { playSeeds(t, Run, *seeds) }

func TestSimulationOfWorkflows(t *testing.T) { playSeeds(t, RunWorkflows, (*seeds+3)/4) }

func TestSimulationOfBusyDocuments(t *testing.T) { playSeeds(t, RunBusy, (*seeds+9)/10) }

func TestSimulationOfACrowd(t *testing.T) {
	playSeeds(t, func(seed uint64) *Violation { return RunCrowd(seed, 2000) }, (*seeds+1999)/2000)
}

// playSeeds plays two seeds at once, up to the first that fails.
func playSeeds(t *testing.T, run func(uint64) *Violation, seeds uint64) {
	var next atomic.Uint64
	var failed atomic.Bool
	var mu sync.Mutex
	fails := map[uint64]int{}
	began := time.Now()
	debug.SetGCPercent(400) // a seed leaves much behind, and all of it can go
	play := func(t *testing.T) {
		for *times > 1 || !failed.Load() {
			i := next.Add(1) - 1
			if i >= seeds**times {
				return
			}
			seed := *from + i / *times
			var v *Violation
			synctest.Test(t, func(*testing.T) { v = run(seed) })
			if v == nil {
				continue
			}
			mu.Lock()
			if fails[seed]++; fails[seed] == 1 {
				t.Error(v)
			}
			mu.Unlock()
			failed.Store(true)
		}
	}
	t.Run("seeds", func(t *testing.T) {
		for w := range 2 {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				play(t)
			})
		}
	})
	if *times > 1 {
		t.Logf("of %d times each seed failed: %v", *times, fails)
	}
	t.Logf("%d seeds from %d in %v", seeds, *from, time.Since(began).Round(time.Millisecond))
}
