package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrimaryAmong_SeveralHosts_IsTheOneThatTheServerNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		primary string
		hosts   []string
		want    string
	}{
		"replica set":  {"two:27018", []string{"one:27017", "two:27018"}, "two:27018"},
		"one server":   {"", []string{"one:1"}, "one:1"},
		"default port": {"", []string{"one"}, "one:27017"},
		"IPv6":         {"", []string{"[::1]"}, "[::1]:27017"},
		"routers":      {"", []string{"one:1", "two:1"}, "one:1"},
	} {
		require.Equal(t, c.want, primaryAmong(c.primary, c.hosts), name)
	}
}

func TestPrimaryOf_UnusableURI_ErrorHidesPassword(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"mongodb://user:secret@one,two/", "mongodb://user:secret@one/?x=%", "http://secret/"} {
		_, err := primaryOf(t.Context(), uri)
		require.ErrorIs(t, err, errUnusable)
		require.NotContains(t, err.Error(), "secret")
	}
}
