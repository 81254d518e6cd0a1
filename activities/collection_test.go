package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// fakeLocker's collection has the ID "own", and replaces the one with the ID "replaced".
func TestActivities_OtherCollection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		activity, in string
		// failure is that of an activity which carries the ID of a collection that was replaced. "" if it succeeds.
		failure string
	}{
		"Acquire":                     {wire.ActivityAcquire, `"resources":[{"name":"a"}],"schedule":7`, wire.FailureLost},
		"Acquire that reacquires":     {wire.ActivityAcquire, `"resources":[{"name":"a"}],"schedule":7,"reacquire":true`, ""},
		"Wait":                        {wire.ActivityWait, `"resource":{"name":"a"},"order":{"schedule":7,"attempt":1}`, wire.FailureLost},
		"Wait of one that reacquires": {wire.ActivityWait, `"resource":{"name":"a"},"order":{"schedule":7,"attempt":1},"reacquire":true`, ""},
		"Bar":                         {wire.ActivityBar, `"resources":["a"],"saga":"2","schedule":7`, ""},
		"Release":                     {wire.ActivityRelease, `"resources":["a"],"schedule":7`, ""},
		"Verify":                      {wire.ActivityVerify, `"used":[{"resource":"a","schedule":7}]`, wire.FailureLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for collection, want := range map[string]string{"own": "", "": "", "other": wire.FailureOtherCollection, "replaced": test.failure} {
				f := &fakeLocker{}
				_, err := call(t, f, test.activity, `{"collection":"`+collection+`",`+test.in+`}`)
				if want == "" {
					require.NoError(t, err, collection)
					continue
				}
				var app *temporal.ApplicationError
				require.ErrorAs(t, err, &app, collection)
				require.Equal(t, want, app.Type(), collection)
				require.Equal(t, want == wire.FailureLost, app.NonRetryable(), "%s waits as long as it takes", collection)
				require.Empty(t, f.bars)
			}
		})
	}
}

// The refusal names a command with the ID, which operators copy. A client that may start activities can write any text in place of the ID.
func TestActivities_HostileCollectionID_NamesNoCommand(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"x; touch pwned #", "$(touch pwned)", "`touch pwned`", "x\\ntouch pwned", "--now", strings.Repeat("x", 65), "x y"} {
		_, err := call(t, &fakeLocker{}, wire.ActivityRelease, `{"collection":"`+id+`","resources":["a"],"schedule":7}`)
		require.ErrorContains(t, err, "is not the ID of a collection")
		require.NotContains(t, err.Error(), "lockstep replaces")
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := call(t, &fakeLocker{}, wire.ActivityRelease, `{"collection":"CFVPV5ZIQRZC3C2H7GV2JDZO2P","resources":["a"],"schedule":7}`)
	require.ErrorContains(t, err, "lockstep replaces CFVPV5ZIQRZC3C2H7GV2JDZO2P --reason")
}
