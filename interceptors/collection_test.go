package interceptors

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// movingLocker is led to another collection while it takes locks.
type movingLocker struct {
	*fakeLocker
	before, after string
	entered       bool
}

func (m *movingLocker) KnownCollectionID() string {
	if m.entered {
		return m.after
	}
	return m.before
}

func (m *movingLocker) Replaces(_ context.Context, id string) (bool, string, error) {
	own := m.KnownCollectionID()
	return id == "replaced" && own != id, own, nil
}

func TestStep_OtherCollection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		carries, before, after string
		reacquire              bool
		failure                string // "" if the step runs
		final                  bool
	}{
		"own":                                     {"a", "a", "a", false, "", false},
		"carries none":                            {"", "a", "a", false, "", false},
		"other":                                   {"b", "a", "a", false, wire.FailureOtherCollection, false},
		"other, even if it reacquires":            {"b", "a", "a", true, wire.FailureOtherCollection, false},
		"led elsewhere during the attempt":        {"a", "a", "b", false, wire.FailureOtherCollection, false},
		"not known, and another":                  {"b", "", "a", false, wire.FailureOtherCollection, false},
		"replaced":                                {"replaced", "a", "a", false, wire.FailureLost, true},
		"replaced, and it reacquires":             {"replaced", "a", "a", true, "", false},
		"replaced during the attempt":             {"replaced", "replaced", "a", false, wire.FailureLost, true},
		"replaced during one that reacquires":     {"replaced", "replaced", "a", true, "", false},
		"the own ID never counts as one replaced": {"replaced", "replaced", "replaced", false, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &movingLocker{fakeLocker: &fakeLocker{}, before: test.before, after: test.after}
			l.enter = func(context.Context, int, lockcore.StepRequest) error {
				l.entered = true
				return nil
			}
			guard := sagaGuard()
			guard.Collection, guard.Reacquire = test.carries, test.reacquire
			ran := false
			_, err := runStep(t, l, guard, func(ctx context.Context) (string, error) {
				ran = true
				return done(ctx)
			})
			require.Equal(t, test.failure == "", ran)
			if test.failure == "" {
				require.NoError(t, err)
				return
			}
			requireFailure(t, err, test.failure, test.final)
			if l.entered {
				require.Equal(t, 1, l.kept()[0].leaves(), "what it took is given back")
			}
		})
	}
}
