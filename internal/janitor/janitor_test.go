package janitor

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestRun_TwoJanitors_OneWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/w", "r", "r", lockcore.Forever)
		first := run(t, w.janitor(t))
		synctest.Wait()
		second := run(t, w.janitor(t))
		elapse(10*time.Minute + time.Second)
		require.Len(t, w.rounds(), 11)
		first()
		require.Empty(t, w.on(t, LockName("ns")), "the janitor's lock is released")
		elapse(10 * time.Minute)
		require.Len(t, w.rounds(), 21)
		second()
		elapse(10 * time.Minute)
		require.Len(t, w.rounds(), 21)
	})
}

func TestRun_DeadJanitor_IsReplacedAfterItsTTL(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j := w.janitor(t)
		_, err := w.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "%janitor/dead"}, Resources: []lockcore.Resource{lockcore.Exclusive(LockName("ns"))}})
		require.NoError(t, err)
		defer run(t, j)()
		elapse(59 * time.Second)
		require.Empty(t, w.rounds())
		elapse(2 * time.Second)
		require.Len(t, w.rounds(), 1)
	})
}

// Holds of two intervals last as long as a janitor works.
func TestRun_OpenRun_HoldsLast(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.is("w/r", answer{verdict: open})
		stop := run(t, w.janitor(t))
		for i := range 10 { // at any moment between two rounds
			w.keeps(t, "ns/w", "r", fmt.Sprint(i), 2*time.Minute)
			elapse(7 * time.Second)
		}
		w.keeps(t, "ns/w", "r", "an hour", time.Hour)
		for range 120 {
			elapse(time.Minute)
			for i := range 10 {
				require.Equal(t, []string{"ns/w holding"}, w.on(t, fmt.Sprint(i)))
			}
			require.Equal(t, []string{"ns/w holding"}, w.on(t, "an hour"))
		}
		extended := 0
		for _, r := range w.rounds() {
			extended += r.Extended
		}
		require.InDelta(t, 10*120+4, extended, 20, "an hour's hold is extended each half hour")
		stop()
		elapse(time.Hour)
		require.Empty(t, w.on(t, "0"))
	})
}

// The holder has died, and the process that watched the queue.
func TestRun_HeadOfQueue_IsWoken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		dies := request("dead", "", "r", 0)
		dies.Keep = false
		_, err := w.TryEnter(t.Context(), dies)
		require.NoError(t, err)
		w.waits(t, "ns/w", "r", "r")
		w.is("w/r", answer{verdict: open})
		elapse(time.Minute)
		require.Equal(t, []string{"ns/w waiting"}, w.on(t, "r"), "no process watches the queue")
		defer run(t, w.janitor(t))()
		elapse(time.Second)
		require.Equal(t, []string{"ns/w claimed"}, w.on(t, "r"))
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Contains(t, w.wakes, lockcore.Wakeup{Resource: "r", LockID: "ns/w", Run: "r", Part: "r/1", Order: lockcore.Order{Schedule: 1, Attempt: 1}})
	})
}

// A janitor with other credentials can work instead.
func TestRun_RefusedByTemporal_ReleasesItsLock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keeps(t, "ns/w", "r", "r", lockcore.Forever)
		var warnings lines
		j := New(w.options())
		j.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&warnings, nil)))
		defer run(t, j)()
		synctest.Wait()
		require.Len(t, w.rounds(), 1)
		require.Empty(t, w.on(t, LockName("ns")), "the janitor's lock is released")
		elapse(9 * time.Minute)
		require.Len(t, w.rounds(), 1, "it does not try again at once")
		elapse(2 * time.Hour)
		require.Greater(t, len(w.rounds()), 10, "it tries again")
		require.Equal(t, 1, warnings.count("Temporal refuses it"), warnings.text)
		require.Equal(t, []string{"ns/w holding"}, w.on(t, "r"))

		allowed := w.janitor(t)
		w.mu.Lock()
		w.results = nil
		w.mu.Unlock()
		defer run(t, allowed)()
		elapse(time.Hour)
		require.Greater(t, len(w.rounds()), 55, "a janitor with the right credentials works")
	})
}

// lines is the text of a log.
type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	return len(p), nil
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text, text)
}

func TestRun_LockerClosed_Returns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ended := make(chan struct{})
		j := w.janitor(t)
		go func() {
			defer close(ended)
			j.Run(t.Context())
		}()
		synctest.Wait()
		require.NoError(t, w.Close(t.Context()))
		<-ended
	})
}

func TestCheckPace_OutOfBounds_NamesTheOption(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckPace("--", 0, 0))
	for field, err := range map[string]error{
		"--Interval": CheckPace("--", time.Millisecond, 0), "--RequestsPerSecond": CheckPace("--", 0, -1),
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
}

// elapse advances the virtual time.
func elapse(d time.Duration) { <-time.After(d) }
