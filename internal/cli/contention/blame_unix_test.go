//go:build unix

package contention

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One resource has 50,000 holds and as many waits, of which 150 wait at any time; one hold lasts all the time.
func TestAnalyze_HundredThousandSpans_IsFast(t *testing.T) {
	t.Parallel()
	const n, depth = 50_000, 150
	spans := make([]parsedSpan, 0, 2*n)
	for i := range int64(n) {
		id := fmt.Sprint(i)
		spans = append(spans, madeSpan(kindHold, "r", id, "exclusive", i+1, i*1000, i*1000+900))
		if i > 0 {
			spans = append(spans, madeSpan(kindWait, "r", id, "exclusive", i+1, max(0, i-depth)*1000, i*1000))
		}
	}
	spans[0].end += n * 1000
	done, began := make(chan *Report, 1), worked(t)
	go func() {
		r, err := Analyze(t.Context(), madeSpans(spans), Options{})
		assert.NoError(t, err)
		done <- r
	}()
	for {
		select {
		case r := <-done:
			last := r.Waits[len(r.Waits)-1]
			require.Len(t, last.Blockers, allBlockers/len(r.Waits))
			require.Equal(t, depth+1-len(last.Blockers), last.Omitted)
			require.True(t, slices.ContainsFunc(last.Blockers, func(b Blocker) bool { return b.Last }))
			require.Zero(t, last.Unexplained)
			return
		case <-time.After(time.Second):
			require.Less(t, worked(t)-began, time.Minute, "it takes too long")
		}
	}
}

// worked returns the processor time of this process: the machine may be busy.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
