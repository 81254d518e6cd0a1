package stack

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUp_AnotherRunWorks_WaitsAndCanBeInterrupted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	unlock, err := lockFile(t.Context(), filepath.Join(s.cfg.Dir, "lock"), func() {})
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Up(ctx), ErrInterrupted)
}

// fakeChoice returns a choice that fails with missing or broken, if they are not nil.
func fakeChoice(kind string, missing, broken error) choice {
	return choice{
		kind:     kind,
		possible: func(context.Context) (string, error) { return "it is there", missing },
		start:    func(context.Context) (Endpoint, error) { return Endpoint{Address: kind + ":1"}, broken },
		remedy:   "get " + kind,
	}
}

func TestChoose_Choices_TakesFirstThatStarts(t *testing.T) {
	t.Parallel()
	missing, broken := errors.New("no such thing"), errors.New("broken\nwith a log")
	const notGiven = "not given: THING is not set"
	for name, tt := range map[string]struct {
		choices []choice
		kind    string
		why     []string
		err     string
	}{
		"first": {
			choices: []choice{fakeChoice("a", nil, nil), fakeChoice("b", nil, nil)},
			kind:    "a",
			why:     []string{notGiven, "a: it is there"},
		},
		"first is missing": {
			choices: []choice{fakeChoice("a", missing, nil), fakeChoice("b", nil, nil)},
			kind:    "b",
			why:     []string{notGiven, "not a: no such thing", "b: it is there"},
		},
		"first does not start": {
			choices: []choice{fakeChoice("a", nil, broken), fakeChoice("b", nil, nil)},
			kind:    "b",
			why:     []string{notGiven, "not a: broken\nwith a log", "b: it is there"},
		},
		"none": {
			choices: []choice{fakeChoice("a", missing, nil), fakeChoice("b", missing, nil)},
			err: "no thing can be started here:\n  " + notGiven + "\n  not a: no such thing\n  not b: no such thing\n" +
				"Any one of these would help:\n  - set THING to a thing server that answers\n  - get a\n  - get b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			e, err := s.choose(t.Context(), server{name: "thing", variable: "THING", endpoint: &s.state.Mongo, choices: tt.choices})
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Endpoint{Kind: tt.kind, Address: tt.kind + ":1", Why: tt.why}, e)
		})
	}
}

func TestChoose_ContextEnds_Stops(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := fakeChoice("a", nil, nil), fakeChoice("b", nil, nil)
	first.start = func(context.Context) (Endpoint, error) {
		cancel()
		return Endpoint{}, errors.New("interrupted")
	}
	second.possible = func(context.Context) (string, error) {
		t.Error("the second choice must not be tried")
		return "", nil
	}
	_, err := s.choose(ctx, server{name: "thing", endpoint: &s.state.Mongo, choices: []choice{first, second}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestChoose_GivenServerAway_ErrorHasNoPassword(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ports, err := freePorts([]string{"none"}, nil)
	require.NoError(t, err)
	address := hostPort(ports["none"])
	s.cfg.MongoURI = "mongodb://me:secret@" + address + "/?serverSelectionTimeoutMS=100"
	_, err = s.choose(t.Context(), s.servers()[0])
	require.ErrorContains(t, err, "LOCKSTEP_MONGODB_URI=mongodb://me:xxxxx@"+address)
	require.ErrorContains(t, err, "does not answer")
	require.ErrorContains(t, err, "unset it")
	require.NotContains(t, err.Error(), "secret")
}

// helperServer returns a server with one choice, which starts the helper.
func helperServer(s *Stack, kind string) server {
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
		healthy: func(_ context.Context, address string) error {
			if address == "wrong" {
				return errors.New("no answer")
			}
			return nil
		},
	}
}

// A server that the user names replaces the stack's own only if it answers. The stack's own address, which is in a shell that has
// evaluated the stack's env, names no other server.
func TestProvide_GivenServer_ReplacesOwnIfItAnswers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.provide(t.Context(), helperServer(s, "one")))
	own, _ := s.recorded("helper")
	given := func(address string) error {
		srv := helperServer(s, "one")
		srv.given = address
		return s.provide(t.Context(), srv)
	}
	require.ErrorContains(t, given("wrong"), "does not answer")
	require.True(t, alive(own))
	require.Equal(t, "one", s.state.Mongo.Kind)

	kill(t, own)
	require.NoError(t, given(s.state.Mongo.Address), "it is repaired")
	require.Equal(t, "one", s.state.Mongo.Kind)
	require.Contains(t, s.state.Mongo.Why[0], "names this stack")
	own, _ = s.recorded("helper")

	require.NoError(t, given("right"))
	require.False(t, alive(own))
	require.Equal(t, Endpoint{Kind: givenKind, Address: "right", Why: []string{"given:  names it"}}, s.state.Mongo)
	require.NoError(t, given("right"), "it is given again")
	require.NoError(t, s.provide(t.Context(), helperServer(s, "one")))
	require.Equal(t, "one", s.state.Mongo.Kind)
}

func TestProvide_OtherChoice_EndsEarlierParts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.provide(t.Context(), helperServer(s, "one")))
	first, _ := s.recorded("helper")
	require.Equal(t, "one", s.state.Mongo.Kind)

	require.NoError(t, s.provide(t.Context(), helperServer(s, "two")))
	second, _ := s.recorded("helper")
	require.Equal(t, "two", s.state.Mongo.Kind)
	require.False(t, alive(first))
	require.True(t, alive(second))
}

func TestRuns_BrokenServer_IsFalse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	srv := helperServer(s, "one")
	require.False(t, s.runs(t.Context(), srv), "nothing was started")
	s.state.Mongo = Endpoint{Kind: "one", Address: "127.0.0.1:1"}
	require.False(t, s.runs(t.Context(), srv), "after Down another server may use the address")

	// probe takes an unknown part for Temporal, whose ports the helper does not have.
	p := startHelper(t, s)
	require.Error(t, s.probe(t.Context(), p))
	require.False(t, s.runs(t.Context(), srv))
	kill(t, p)
	require.ErrorContains(t, s.probe(t.Context(), p), "has ended")

	srv.given = "127.0.0.1:2"
	require.False(t, s.runs(t.Context(), srv), "the user names another server")
}
