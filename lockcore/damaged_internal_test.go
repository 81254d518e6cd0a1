package lockcore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
)

// FuzzReaders_DamagedDocument lets everything that reads documents read some that no operation leaves.
// A document can be damaged by hand, or written by another version. Nothing may panic.
func FuzzReaders_DamagedDocument(f *testing.F) {
	for seed := range uint64(2_000) {
		f.Add(seed)
	}
	records := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewNoopExporter()))
	cfg, err := Config{TracerProvider: records}.withDefaults()
	if err != nil {
		f.Fatal(err)
	}
	tel, err := newObserver(&cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		pick := rand.New(rand.NewPCG(seed, 2)).IntN
		now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
		d := scenarios.Damaged(pick, now)
		other := scenarios.Damaged(pick, now)
		other.ID = "r2"
		for _, s := range statusesOf(d) {
			_ = s.String()
		}
		wakeupsIn(d, d.Queue())
		hasClaim(d)
		for _, deadlock := range deadlocksIn([]rules.Document{*d, *other}) {
			_ = deadlock.String()
		}
		for _, op := range scenarios.AllOps(pick) {
			after, result := op.Apply(d, now, scenarios.Settings)
			a := &update.Answer{After: after, Result: result, Sent: now}
			tel.recordEnded(t.Context(), a, ending{})
			acquire, ok := op.(rules.Acquire)
			if !ok {
				continue
			}
			if !acquire.HoldOnly { // a request with a part
				_, err := resultOf(&acquire, a)
				_ = fmt.Sprint(err)
				tel.recordGrant(t.Context(), &StepRequest{}, &acquire, after, nil)
			}
			_ = fmt.Sprint(busyBy(&acquire, after), lostError(after, acquire.Caller, time.Time{}), verdict(&acquire, after, rules.Next(d, acquire.Waiter())))
		}
	})
}
