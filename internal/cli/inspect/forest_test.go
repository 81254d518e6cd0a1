package inspect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestTheForestHasEveryRootBlockerOnce(t *testing.T) {
	t.Parallel()
	s, x := newScene(t), lockcore.Exclusive
	s.holds("a", x("1"))
	s.holds("b", x("2"))
	s.waits("b", x("1"))
	s.waits("c", x("2"))
	s.waits("d", x("1"))
	s.holds("idle", x("3"))
	// p and q wait for each other, and r for p.
	s.holds("p", x("4"))
	s.holds("q", x("5"))
	s.waits("p", x("5"))
	s.waits("q", x("4"))
	s.waits("r", x("4"))
	found, err := s.site().Forest(t.Context())
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(outline(found)), "\n")
	require.Equal(t, "a", lines[0])
	require.ElementsMatch(t, []string{" b for 1", "  c for 2", " d for 1"}, lines[1:4])
	require.Equal(t, "p", lines[4], "nobody waits for fewer than p")
	require.ElementsMatch(t, []string{" q for 4", "  p in a deadlock for 5", " r for 4"}, lines[5:])
}

func TestACrowdIsCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.holds("a", lockcore.Exclusive("r"))
	for i := range 60 {
		s.waits(fmt.Sprintf("w%02d", i), lockcore.Exclusive("r"))
	}
	found, err := s.site().Forest(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Len(t, found[0].Waiting, 50)
	require.Equal(t, 10, found[0].More)
}
