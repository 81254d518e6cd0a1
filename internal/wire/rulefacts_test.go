package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Workflows of another version, or in another language, write the same JSON.
func TestRuleFacts_JSON_IsStable(t *testing.T) {
	t.Parallel()
	for want, facts := range map[string]RuleFacts{
		`{}`: {},
		`{"owner":"order 7","saga":"2/5","neverVictim":true}`: {Owner: Owner{Name: "order 7"}, Saga: "2/5", NeverVictim: true},
		`{"owner":{"workflow":"parent"}}`:                     {Owner: Owner{Workflow: "parent"}},
	} {
		p, err := EncodeRuleFacts(facts)
		require.NoError(t, err)
		require.Equal(t, want, string(p.GetData()))
		read, err := DecodeRuleFacts(p)
		require.NoError(t, err)
		require.Equal(t, facts, read)
	}
	read, err := DecodeRuleFacts(nil)
	require.NoError(t, err)
	require.Zero(t, read)
	_, err = DecodeRuleFacts(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte("7")})
	require.ErrorIs(t, err, lockcore.ErrInvalid)
}
