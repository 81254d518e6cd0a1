package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestAfterAResetAScopeLacksWhatItHeld(t *testing.T) {
	t.Parallel()
	s := NewState()
	c := s.Open()
	rates := lockcore.SharedLimit("rates", 3)
	c.want([]lockcore.Resource{lockcore.Exclusive("a"), rates})
	c.hold([]lockcore.Resource{lockcore.Exclusive("a"), rates}, false)
	c.lacks, c.held = c.held, nil
	require.Equal(t, []lockcore.Resource{rates}, c.missing([]lockcore.Resource{lockcore.Exclusive("a")}))

	// A step that the run before had scheduled may have run in its name.
	c.want([]lockcore.Resource{lockcore.Exclusive("b")})
	c.hold([]lockcore.Resource{lockcore.Exclusive("b")}, true)
	require.Empty(t, c.held)
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a"), lockcore.Exclusive("b"), rates}, c.missing(nil))

	c.hold([]lockcore.Resource{lockcore.Exclusive("b"), rates}, false)
	require.Equal(t, names{"b", "rates"}, c.held)
	require.Equal(t, []lockcore.Resource{lockcore.Exclusive("a")}, c.missing(nil))
	c.hold([]lockcore.Resource{lockcore.Exclusive("b")}, true)
	require.Equal(t, names{"b", "rates"}, c.held)
}

func TestWhatIsMissingFitsIntoTheRequest(t *testing.T) {
	t.Parallel()
	c := NewState().Open()
	var all []lockcore.Resource
	for i := range mostResources {
		all = append(all, lockcore.Exclusive(fmt.Sprint("account/", i)))
	}
	c.want(all)
	c.hold(all, true)
	require.Len(t, c.missing([]lockcore.Resource{lockcore.Exclusive("other"), lockcore.Exclusive("account/1")}), mostResources-2)
}

func TestTheFirstSagaGetsWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	s := NewState()
	s.handedScope = s.Open()
	handed := s.handedScope
	handed.take([]lockcore.Resource{{Name: "a", Mode: lockcore.ModeExclusive, Held: true}, {Name: "b"}, {Name: "c"}}, []string{"a", "b"})
	require.Same(t, handed, s.Open())
	require.NotSame(t, handed, s.Open())
	require.Equal(t, names{"a"}, handed.held)
	require.Equal(t, names{"b"}, handed.lacks)
	require.Equal(t, []lockcore.Resource{{Name: "a", Mode: lockcore.ModeExclusive, Held: true}, {Name: "b"}, {Name: "c"}}, handed.give())
}
