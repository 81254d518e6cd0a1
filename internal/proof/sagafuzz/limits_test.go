package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A semaphore may have as many in it as a limit that was in force in the last ten seconds before they asked.
func TestCheck_LimitChanges_GreatestOfLastSecondsCounts(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	set := func(limit int, until int64, failed string) []Record {
		return record(Record{What: Limited, Needs: []Need{{Name: "account", Shared: true, Limit: limit}}, Until: until, Error: failed})
	}
	three := join(
		enter("a", workflowRun{"f_wa", "ra"}, step(2, "", ofTwo)), begin("a"), enter("b", workflowRun{"f_wb", "rb"}, step(2, "", ofTwo)), begin("b"),
		enter("c", workflowRun{"f_wc", "rc"}, step(2, "", ofTwo)), begin("c"), end("a"), end("b"), end("c"),
	)
	two := join(
		enter("a", workflowRun{"f_wa", "ra"}, step(2, "", ofTwo)), begin("a"), enter("b", workflowRun{"f_wb", "rb"}, step(2, "", ofTwo)), begin("b"),
		end("a"), end("b"),
	)
	for name, c := range map[string]struct {
		changes, parties []Record
		after            int64 // seconds between the changes and the parties
		want             []string
	}{
		"raised":                              {set(3, 0, ""), three, 60, nil},
		"not raised, since the change failed": {set(0, 0, "there is no policy"), three, 60, []string{"limit"}},
		"raised until a time that has passed": {set(3, 30*second, ""), three, 60, []string{"limit"}},
		"raised until a moment ago":           {set(3, 55*second, ""), three, 60, nil},
		"raised and removed":                  {append(set(3, 0, ""), set(0, 0, "")...), three, 60, []string{"limit"}},
		"raised and removed a moment ago":     {append(set(3, 0, ""), set(0, 0, "")...), three, 9, nil},
		"lowered":                             {set(1, 0, ""), two, 11, []string{"limit"}},
		"lowered a moment ago":                {set(1, 0, ""), two, 9, nil},
	} {
		var log []Record
		for _, r := range c.changes {
			r.Trusted = 1
			log = append(log, r)
		}
		for _, r := range c.parties {
			r.At += c.after * second
			if r.What == End {
				r.Trusted = r.At
			}
			log = append(log, r)
		}
		require.Equal(t, c.want, checksOf(Check(Plan{}, log)), name)
	}
}
