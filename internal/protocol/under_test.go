package protocol_test

import (
	"errors"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A step runs where its locks are, and where nobody says in which run they are.
func TestAStepIsRefusedInAnotherRunThanThatOfItsLocks(t *testing.T) {
	t.Parallel()
	p, err := protocol.EncodeUnder("run")
	require.NoError(t, err)
	require.NoError(t, protocol.CheckUnder(nil, "run"))
	require.NoError(t, protocol.CheckUnder(p, "run"))

	var refused *temporal.ApplicationError
	require.ErrorAs(t, protocol.CheckUnder(p, "another"), &refused)
	require.Equal(t, protocol.FailureReset, refused.Type())
	require.True(t, refused.NonRetryable())

	require.ErrorIs(t, protocol.LockError(protocol.CheckUnder(&commonpb.Payload{Data: []byte("?")}, "run")), lockcore.ErrInvalid)
}

// Only the server's own word on an activity counts: what wraps the failure, or looks like it, is somebody else's.
func TestAFailureThatIsNotAnActivitysIsNoReset(t *testing.T) {
	t.Parallel()
	require.False(t, protocol.WasReset(nil))
	require.False(t, protocol.WasReset(errors.New("lockstep.Reset")))
	require.False(t, protocol.WasReset(temporal.NewApplicationError("no", protocol.FailureReset)))
}
