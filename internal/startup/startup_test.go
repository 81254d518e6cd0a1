package startup_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/startup"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestAwait_Database_IsWaitedFor(t *testing.T) {
	t.Parallel()
	election := mongo.CommandError{Code: 10107, Message: "not primary"}
	refused := &mongo.CommandError{Code: 13, Message: "not authorized"}
	gone := errors.New("interrupted")
	for name, c := range map[string]struct {
		answers  time.Duration // never if negative
		answer   error
		cancel   time.Duration
		took     time.Duration
		want     error
		warnings int
	}{
		"at once":           {},
		"after an election": {answers: 11 * time.Second, took: 11 * time.Second, warnings: 2},
		"refused":           {answers: 2 * time.Second, answer: refused, took: 2 * time.Second, want: refused, warnings: 1},
		"never":             {answers: -1, took: startup.Patience, want: startup.ErrNoDatabase, warnings: 3},
		"Ctrl-C":            {answers: -1, cancel: 3 * time.Second, took: 3 * time.Second, want: gone, warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(&b, nil)))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, func() { cancel(gone) })
				}
				began := time.Now()
				err := startup.Await(ctx, logger, func(context.Context) error {
					if c.answers < 0 || time.Since(began) < c.answers {
						return election
					}
					return c.answer
				})
				require.ErrorIs(t, err, c.want)
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, c.warnings, strings.Count(b.String(), "waits for the database"), &b)
				if c.answers < 0 && c.cancel == 0 {
					require.EqualError(t, err, "no database answered for 30s: "+election.Error())
				}
			})
		})
	}
}
