package contention

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// read returns the spans of a scene.
func (s *scene) read(t *testing.T) *Spans {
	t.Helper()
	path := filepath.Join(t.TempDir(), "traces.json")
	require.NoError(t, os.WriteFile(path, s.otlp(t, 5), 0o600))
	spans, err := Read(t.Context(), []string{path}, bytes.NewReader(nil))
	require.NoError(t, err)
	return spans
}

// A name that no span has is an error, which lists names near it, and not a report about nothing.
func TestCheckSelected_UnknownResource_ListsNearNames(t *testing.T) {
	t.Parallel()
	s := &scene{}
	for i, name := range []string{"account/1", "account/12", "order/7", "Stock"} {
		s.hold(name, "A", i+1, 0, 1000, nil)
	}
	for resource, want := range map[string]string{
		"acount/1": `no span names a resource that begins with "acount/1"; near that is "account/1", "account/12"`,
		"orders/":  `no span names a resource that begins with "orders/"; near that is "order/7"`,
		"stock":    `no span names a resource that begins with "stock"; near that is "Stock"`,
		"7":        `no span names a resource that begins with "7"; near that is "order/7"`,
		"nosuch":   `no span names a resource that begins with "nosuch"; there is "Stock", "account/1", "account/12", "order/7"`,
	} {
		err := s.read(t).CheckSelected(Options{Resource: resource})
		require.ErrorIs(t, err, ErrNothingSelected)
		require.ErrorContains(t, err, want)
	}
	for _, resource := range []string{"", "account/", "order/7"} {
		require.NoError(t, s.read(t).CheckSelected(Options{Resource: resource}))
	}
	for _, o := range []Options{{Since: at(2000)}, {Until: at(-1)}, {Resource: "order", Since: at(2000)}} {
		err := s.read(t).CheckSelected(o)
		require.ErrorIs(t, err, ErrNothingSelected)
		require.ErrorContains(t, err, "no lock span is of the time between --since and --until")
	}
}
