package janitor

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A damaged document stops no janitor. It is counted in each round, and logged once an hour.
func TestRound_DamagedDocument_IsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory(time.Now)
		raw, err := bson.Marshal(bson.D{{Key: "_id", Value: "a/bad"}})
		require.NoError(t, err)
		memory.Damage("a/bad", raw)
		l, err := lockcore.NewWithStore(memory, lockcore.Config{})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close(t.Context())) }()
		w := &world{Steps: l.Steps(), answers: map[string]answer{}}
		w.keeps(t, "ns/w", "run", "z", time.Hour)
		var logs logLines
		j := w.janitor(t, func(o *Options) { o.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&logs, nil))) })
		for range 3 {
			result := w.round(t, j)
			require.Equal(t, 1, result.Damaged)
			require.Equal(t, 1, result.Listed, "the others are found")
		}
		require.Equal(t, 1, logs.count("resource=a/bad"))
		<-time.After(time.Hour)
		w.round(t, j)
		require.Equal(t, 2, logs.count("resource=a/bad"))
	})
}

type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}
