package update

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Each waiter of a process has a ticket. If each kept a document, a queue would take memory by the square of its length.
func TestTicket_AnswerIsTaken_ForgetsTheDocument(t *testing.T) {
	t.Parallel()
	ticket := &Ticket{active: &activeLine{}, call: &Call{}}
	answer := func() weak.Pointer[rules.Document] {
		document := &rules.Document{ID: "x"}
		ticket.call.answer = &Answer{After: document}
		a, ok := ticket.Answer()
		require.True(t, ok)
		require.Same(t, document, a.After)
		return weak.Make(document)
	}
	kept := answer()
	runtime.GC()
	require.Nil(t, kept.Value())
	_, again := ticket.Answer()
	require.False(t, again)
}
