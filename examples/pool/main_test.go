package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// The example starts this binary as a worker, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	testenv.Main(m)
}

func TestRun_FiftyWorkflowsFivePhones_NoneIsUsedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	err := run(t.Context(), site{testenv.TemporalAddress(t), testenv.MongoURI(t), testenv.Mongo(t).Name(), testenv.TaskQueue(t)}, &out)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "50 workflows on 5 phones\n")
}

// wellUsed returns the phones after a run in which all is right: the test of app-01 was repeated, and phone-2 came back at fence 100.
func wellUsed() (found []Phone) {
	fence := int64(100)
	for _, name := range phones {
		found = append(found, Phone{Name: name})
	}
	for i, app := range names(apps) {
		p := &found[i%len(found)]
		for _, step := range []string{"install", "test", "test", "report"} {
			fence++
			p.Uses = append(p.Uses, Use{App: app, Step: step, Fence: fence})
		}
	}
	return found
}

func TestCheck_WrongUses_AreFound(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(wellUsed(), 100, "app-01"))
	for name, tt := range map[string]struct {
		change func(found []Phone)
		want   string
	}{
		"two at once": {func(found []Phone) {
			uses := found[0].Uses // of app-01, then app-06
			uses[3].App, uses[4].App = uses[4].App, uses[3].App
		}, "phone-1 was used by another workflow while app-01 had it"},
		"an earlier fence":        {func(found []Phone) { found[0].Uses[1].Fence = 1 }, "phone-1: app-01 used it under fence 1 after fence 101"},
		"never used":              {func(found []Phone) { found[4].Uses = nil }, "phone-5 was never used"},
		"another phone":           {func(found []Phone) { found[2].Uses[0].App = "app-01" }, "app-01 used phone-1 and phone-3"},
		"out of service":          {func(found []Phone) { found[1].Uses[0].Fence = 99 }, "phone-2 was granted to app-02 under fence 99"},
		"another phone is wiped":  {func(found []Phone) { found[0].Uses[3].Step = "wipe"; found[0].Uses[1].Step = "wipe" }, "app-01 ran these steps on phone-1: install, wipe, test, wipe"},
		"a step is missing":       {func(found []Phone) { found[0].Uses = found[0].Uses[1:] }, "app-01 ran these steps on phone-1: test, test, report"},
		"the killed step is lost": {func(found []Phone) { found[0].Uses = slices.Delete(found[0].Uses, 1, 2) }, "the test of app-01 was not repeated"},
		"a workflow is missing":   {func(found []Phone) { found[4].Uses = found[4].Uses[4:] }, "49 workflows had a phone, of 50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := wellUsed()
			tt.change(found)
			require.ErrorContains(t, check(found, 100, "app-01"), tt.want)
		})
	}
}

func TestObserved_LaterArrivalIsGrantedFirst_IsFound(t *testing.T) {
	t.Parallel()
	o := observed{wait: names(5)}
	require.NoError(t, o.next(names(5)))
	require.NoError(t, o.next(names(5)[2:]))
	require.NoError(t, o.next(append(names(1), names(5)[3:]...)), "one that has missed its grant returns")
	require.Equal(t, names(5)[3:], o.wait)
	require.ErrorContains(t, o.next(names(4)[3:]), fmt.Sprintf("the queue is [app-04], and %v came in this order", names(5)[3:]))
}
