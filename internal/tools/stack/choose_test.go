package stack

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// option is a choice with a fixed fate.
func option(kind string, missing, broken error) choice {
	return choice{
		kind: kind,
		possible: func(context.Context) (string, error) {
			if missing != nil {
				return "", missing
			}
			return "it is there", nil
		},
		start:  func(context.Context) (Endpoint, error) { return Endpoint{Address: kind + ":1"}, broken },
		remedy: "get " + kind,
	}
}

func TestChooseTakesTheFirstThatIsPossibleAndStarts(t *testing.T) {
	t.Parallel()
	missing, broken := errors.New("no such thing"), errors.New("broken\nwith a log")
	binding := func(c choice) choice { c.binding = true; return c }
	tests := map[string]struct {
		choices []choice
		kind    string
		why     []string
		err     string
	}{
		"first": {
			choices: []choice{option("a", nil, nil), option("b", nil, nil)},
			kind:    "a",
			why:     []string{"a: it is there"},
		},
		"first is missing": {
			choices: []choice{option("a", missing, nil), option("b", nil, nil)},
			kind:    "b",
			why:     []string{"not a: no such thing", "b: it is there"},
		},
		"first does not start": {
			choices: []choice{option("a", nil, broken), option("b", nil, nil)},
			kind:    "b",
			why:     []string{"not a: broken\nwith a log", "b: it is there"},
		},
		"one that was asked for does not start": {
			choices: []choice{binding(option("a", nil, broken)), option("b", nil, nil)},
			err:     "thing: broken\nwith a log",
		},
		"one that could be asked for was not": {
			choices: []choice{binding(option("a", missing, nil)), option("b", nil, nil)},
			kind:    "b",
			why:     []string{"not a: no such thing", "b: it is there"},
		},
		"none": {
			choices: []choice{option("a", missing, nil), option("b", missing, nil)},
			err: "no thing can be had here:\n  not a: no such thing\n  not b: no such thing\n" +
				"Any one of these would do:\n  - get a\n  - get b",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var replaced []string
			e, err := choose(t.Context(), "thing", tt.choices, func(string, ...any) {}, func(kind string) error {
				replaced = append(replaced, kind)
				return nil
			})
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Endpoint{Kind: tt.kind, Address: tt.kind + ":1", Why: tt.why}, e)
			require.Equal(t, tt.kind, replaced[len(replaced)-1])
		})
	}
}

func TestChooseStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	first := option("a", nil, nil)
	first.start = func(context.Context) (Endpoint, error) {
		cancel()
		return Endpoint{}, errors.New("interrupted")
	}
	second := option("b", nil, nil)
	second.possible = func(context.Context) (string, error) {
		t.Error("the second choice must not be looked at")
		return "", nil
	}
	_, err := choose(ctx, "thing", []choice{first, second}, func(string, ...any) {}, func(string) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

func TestOrderOfTheChoices(t *testing.T) {
	t.Parallel()
	s := setup(t)
	kinds := func(choices []choice) (kinds []string) {
		for _, c := range choices {
			kinds = append(kinds, c.kind)
			require.NotEmpty(t, c.remedy)
		}
		return kinds
	}
	require.Equal(t, []string{"given", "docker", "mongod", "documentdb"}, kinds(s.mongoChoices()))
	require.Equal(t, []string{"given", "path", "go-install"}, kinds(s.temporalChoices()))
}

func TestWhatIsGivenButDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ports, err := freePorts([]string{"none"}, nil)
	require.NoError(t, err)
	nobody := hostPort(ports["none"])
	s.cfg.MongoURI = "mongodb://me:secret@" + nobody + "/?serverSelectionTimeoutMS=100"
	_, err = choose(t.Context(), "MongoDB", s.mongoChoices(), func(string, ...any) {}, func(string) error { return nil })
	require.ErrorContains(t, err, "LOCKSTEP_MONGODB_URI=mongodb://me:xxxxx@"+nobody)
	require.ErrorContains(t, err, "does not answer")
	require.ErrorContains(t, err, "unset it")
	require.NotContains(t, err.Error(), "secret")
}

func TestTheStacksOwnAddressIsNoStrangers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.cfg.MongoURI = "mongodb://127.0.0.1:1/"
	s.state.Mongo = Endpoint{Kind: "documentdb", Address: s.cfg.MongoURI}
	_, err := s.mongoChoices()[0].possible(t.Context())
	require.ErrorContains(t, err, "names this very stack")
	s.state.Mongo.Kind = givenKind
	_, err = s.mongoChoices()[0].possible(t.Context())
	require.NoError(t, err)
}

func TestDocumentDBSaysWhatItMisses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host host
		err  string
	}{
		"another system":    {host{os: "darwin"}, "this is darwin"},
		"another Linux":     {host{os: "linux", id: "ubuntu"}, `this is "ubuntu"`},
		"no root":           {host{os: "linux", id: "debian", uid: 1000}, "this is user 1000"},
		"a plain container": {host{os: "linux", id: "debian"}, "--privileged"},
		"Debian as root":    {host{os: "linux", id: "debian", mounts: true}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := documentDBPossible(tt.host)
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.err)
		})
	}
}
