package contention

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// patience is a context that is cancelled when it is asked for the last time whether it is.
type patience struct {
	context.Context
	cancel      context.CancelCauseFunc
	asked, last int
}

var errGaveUp = errors.New("gave up")

func newPatience(t *testing.T, last int) *patience {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return &patience{Context: ctx, cancel: cancel, last: last}
}

func (p *patience) Err() error {
	if p.asked++; p.asked == p.last {
		p.cancel(errGaveUp)
	}
	return p.Context.Err()
}

// Whenever the caller gives up, it gets the cause, soon, and no report.
func TestAnalyzeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	const n = 20
	spans := func() *Spans {
		var all []parsedSpan
		for i := range int64(n) {
			all = append(all, madeSpan(kindHold, "r", string(rune('a'+i)), "exclusive", i+1, i*1000, (i+1)*1000))
			all = append(all, madeSpan(kindWait, "r", string(rune('a'+i)), "exclusive", i+1, 0, i*1000))
		}
		return madeSpans(all)
	}
	patient := newPatience(t, 0)
	r, err := Analyze(patient, spans(), Options{})
	require.NoError(t, err)
	require.Len(t, r.Waits, n)
	require.Greater(t, patient.asked, 3*n, "blockers, roots and trees ask for each wait")

	for last := 1; last <= patient.asked; last++ {
		p := newPatience(t, last)
		r, err := Analyze(p, spans(), Options{})
		require.ErrorIs(t, err, errGaveUp, "at %d", last)
		require.Nil(t, r, "at %d", last)
		require.LessOrEqual(t, p.asked-last, 3, "at %d: what is left is not begun", last)
	}
}
