package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// storedPolicies returns what lockstep policies prints for programs.
func (l *locks) storedPolicies(t *testing.T) (text string, p inspect.Policies) {
	t.Helper()
	text = l.prints(t, "policies", "--json")
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	return text, p
}

func TestLimit_Policy_IsSetShownAndRemoved(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	require.Contains(t, l.fails(t, 1, "limit", "partner/*", "5"), "there is no collection of locks")
	l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "order-1", Part: "p"}}, lockcore.SharedLimit("partner/acme", 3))
	require.Equal(t, "no policy: the limits of requests are in force\n", l.prints(t, "policies"))
	require.Contains(t, l.examined(t), "ok       policies     none is set\n")

	set := l.prints(t, "limit", "partner/*", "5", "--for", "7d", "--reason", "a drill")
	require.Regexp(t, `^partner/\*: limit 5 until \d{4}-\S+ \S+ UTC\nthese are the first policies here: .*\nin force everywhere within ten seconds\n$`, set)
	_, p := l.storedPolicies(t)
	require.Len(t, p.List, 1)
	require.InDelta(t, 7*24*time.Hour, p.List[0].Until.Sub(p.List[0].At), float64(time.Minute))
	require.Contains(t, p.List[0].By, "@")
	require.Equal(t, "a drill", p.List[0].Reason)

	const inForce = `order-1 holds partner/acme \(shared with limit 5 by policy partner/\*, until \S+ \S+ UTC; the request asked for 3\) for `
	require.Regexp(t, `(?m)^partner/acme +order-1 +shared with limit 5 by policy partner/\* `, l.prints(t, "ps"))
	require.Regexp(t, inForce, l.prints(t, "show", "partner/acme"))
	require.Regexp(t, inForce, l.prints(t, "why", "order-1", "--no-temporal"))
	var shown inspect.Resource
	require.NoError(t, json.Unmarshal([]byte(l.prints(t, "show", "partner/acme", "--json")), &shown))
	require.Equal(t, p.List[0], *shown.Holders[0].Policy)

	require.NotContains(t, l.prints(t, "limit", "unused", "2"), "first")
	found := l.examined(t)
	require.Contains(t, found, `warning  policies     1 matches no stored resource: unused; on 1 resource requests ask for other limits than the policy's: "partner/acme" (3, and the policy 5)`)
	require.Contains(t, found, "ok       semaphores   all requests")

	require.Contains(t, l.prints(t, "limit", "partner/*", "--remove", "--reason", "the drill is over"), "partner/*: removed\n")
	require.Contains(t, l.fails(t, 1, "limit", "partner/*", "--remove"), `there is no policy for "partner/*"`)
	require.Contains(t, l.fails(t, 1, "limit", "partner/*", "--exact", "--remove"), `there is no policy for "partner/*"`)
	require.Contains(t, l.prints(t, "show", "partner/acme"), "(shared with limit 3) for")
	listed := l.prints(t, "policies")
	require.Regexp(t, `(?m)^unused +limit 2 +\S+ \S+ UTC +\S+@\S+ +-$`, listed)
	require.Regexp(t, `(?m)^  \S+ \S+ UTC  partner/\*: removed, by \S+@\S+: the drill is over$`, listed)
}

// A name may end with a star. A policy with an end is listed as ended, and is not put back.
func TestPolicies_JSON_IsPutBack(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "limit", "*", "4", "--reason", "all, for the test")
	l.prints(t, "limit", "star*", "3", "--exact", "--for", "24h")
	l.prints(t, "limit", "brief", "2", "--for", "3s")
	require.Eventually(t, func() bool { return strings.Contains(l.prints(t, "policies"), "UTC, ended") }, within, 100*time.Millisecond)
	require.Regexp(t, `(?m)^star\* \(exactly\) +limit 3 until `, l.prints(t, "policies"))
	text, before := l.storedPolicies(t)
	file := filepath.Join(t.TempDir(), "policies.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	l.prints(t, "limit", "*", "--remove")
	l.prints(t, "limit", "star*", "9", "--exact")
	l.prints(t, "limit", "brief", "--remove")
	require.Contains(t, l.prints(t, "limit", "--from", file), "brief: has ended: it was not set\n")
	_, after := l.storedPolicies(t)
	require.Len(t, before.List, 3)
	require.Len(t, after.List, 2)
	for i, want := range []lockcore.Policy{before.List[0], before.List[2]} {
		require.False(t, after.List[i].At.Before(want.At))
		want.At = after.List[i].At
		require.Equal(t, want, after.List[i])
	}
	for content, want := range map[string]string{
		"no JSON": "is not the output of lockstep policies --json", `{"policies": [{"name": "a"}]}`: "the policy for a has neither a limit nor members",
		`{"policies": [{"name": "a", "limit": 1, "unreadable": true}]}`: "could not be decoded",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.Contains(t, l.fails(t, 1, "limit", "--from", file), want)
	}
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	require.Equal(t, "the file has no policy\n", l.prints(t, "limit", "--from", file))
}

func TestLimit_WrongInput_ChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	for want, args := range map[string][]string{
		"wants the name of a resource":                       {"", "3"},
		"invalid Policy.Name \"nnnn":                         {strings.Repeat("n", 513), "3"},
		"invalid Policy.Reason \"rrrr":                       {"a", "3", "--reason", strings.Repeat("r", 1025)},
		`the limit is "3\x1b[2J": want`:                      {"a", "3\x1b[2J"},
		`--for is "7d\n": want 1s to 3650d`:                  {"a", "3", "--for", "7d\n"},
		`--for is "-1h": want 1s to 3650d`:                   {"a", "3", "--for", "-1h"},
		`--for is "99999999999999999999d": want 1s to 3650d`: {"a", "3", "--for", "99999999999999999999d"},
	} {
		require.Contains(t, l.fails(t, 2, append([]string{"limit"}, args...)...), want)
	}
	require.Equal(t, "no policy: the limits of requests are in force\n", l.prints(t, "policies"))
	const name = "a\x1b[2J\nb"
	require.Contains(t, l.prints(t, "limit", name, "3"), "a�[2J�b: limit 3\n")
	_, p := l.storedPolicies(t)
	require.Equal(t, name, p.List[0].Name)
}

func TestPolicies_NotDecoded_IsReportedAndRemoved(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "limit", "printer", "2")
	later := bson.D{{Key: "name", Value: "phones"}, {Key: "members", Value: bson.A{"phone-1"}}}
	_, err := l.collection(t).UpdateByID(t.Context(), store.IdentityID, bson.D{{Key: "$push", Value: bson.D{{Key: "policies", Value: later}}}})
	require.NoError(t, err)
	const damaged = "1 policy cannot be decoded: phones; until each is set again or removed"
	code, out, stderr := l.lockstep(t, "policies")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, damaged)
	require.Regexp(t, `(?m)^phones +cannot be decoded .*\nprinter +limit 2 `, out)
	_, out, _ = l.lockstep(t, "doctor")
	require.Contains(t, out, "broken   policies     "+damaged)
	l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "job-1", Part: "p"}}, lockcore.Shared("phones"))
	l.prints(t, "limit", "phones", "--remove")
	require.NotContains(t, l.prints(t, "policies"), "cannot be decoded")
}
