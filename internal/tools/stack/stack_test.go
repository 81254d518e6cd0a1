package stack

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUpWaitsItsTurnAndCanBeInterrupted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	unlock, err := lockFile(t.Context(), filepath.Join(s.cfg.Dir, "lock"), func() {})
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Up(ctx), ErrInterrupted)
}

// served returns a server that is the helper, with one choice that starts it.
func served(t *testing.T, s *Stack, kind string) server {
	t.Helper()
	return server{
		name:     "server",
		endpoint: &s.state.Mongo,
		parts:    []string{"helper"},
		choices: []choice{{
			kind:     kind,
			possible: func(context.Context) (string, error) { return "it is a test", nil },
			start: func(ctx context.Context) (Endpoint, error) {
				p, _, err := s.ensure(ctx, helperService())
				return Endpoint{Address: hostPort(p.Ports["main"])}, err
			},
		}},
		healthy: func(context.Context, string) error { return nil },
	}
}

func TestProvideEndsThePartsOfAnEarlierChoice(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.provide(t.Context(), served(t, s, "one")))
	first, _ := s.recorded("helper")
	require.Equal(t, "one", s.state.Mongo.Kind)

	require.NoError(t, s.provide(t.Context(), served(t, s, "two")))
	second, _ := s.recorded("helper")
	require.Equal(t, "two", s.state.Mongo.Kind)
	require.False(t, alive(first))
	require.True(t, alive(second))
}

func TestRunsAsksThePartsAndTheServer(t *testing.T) {
	t.Parallel()
	s := setup(t)
	srv := served(t, s, "one")
	require.False(t, s.runs(t.Context(), srv), "nothing was started")
	s.state.Mongo = Endpoint{Kind: "one", Address: "127.0.0.1:1"}
	require.False(t, s.runs(t.Context(), srv), "after down the address may be somebody else's")

	// A part that probe does not know is asked for Temporal's ports, of which the helper has none.
	p, _, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.Error(t, s.probe(t.Context(), p))
	require.False(t, s.runs(t.Context(), srv))
	kill(t, p)
	require.ErrorContains(t, s.probe(t.Context(), p), "has ended")

	srv.given = "127.0.0.1:2"
	require.False(t, s.runs(t.Context(), srv), "the user names another one")
	srv.healthy = func(context.Context, string) error { return errors.New("not to be asked") }
	require.False(t, s.runs(t.Context(), srv))
}

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	require.True(t, isOwn(Endpoint{Kind: "mongod", Address: "a"}, "a"))
	require.False(t, isOwn(Endpoint{Kind: "mongod", Address: "a"}, "b"))
	require.False(t, isOwn(Endpoint{Kind: givenKind, Address: "a"}, "a"))
}
