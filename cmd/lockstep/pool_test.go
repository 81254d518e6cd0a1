package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// poolRequest asks for a member of a pool, with a priority or 0, and queues if none is free. It returns the member.
func (l *locks) poolRequest(t *testing.T, lockID, pool string, priority int) (member string) {
	t.Helper()
	_, err := l.Policies(t.Context()) // so that the test's Locker follows the commands at once
	require.NoError(t, err)
	return l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: "p"}, Priority: priority}, lockcore.Pool(pool)).Member
}

func TestPool_Members_AreMadeChangedAndShown(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	require.Contains(t, l.fails(t, 1, "pool", "phones"), "there is no collection of locks")
	l.prints(t, "init")
	require.Contains(t, l.fails(t, 1, "pool", "phones"), `there is no pool "phones": lockstep pool phones --database `+l.database+" MEMBER... makes it; no other pool exists")

	made := l.prints(t, "pool", "phones", "phone-1", "phone-2", "--reason", "the first two")
	require.Regexp(t, `^MEMBER +STATE.*\nphone-1 +free +- +- +-\nphone-2 +free .*\nno party waits\nthese are the first policies here.*\nin force everywhere within ten seconds\n$`, made)
	require.Equal(t, "phone-1", l.poolRequest(t, "order-1", "phones", 0))
	require.NotContains(t, l.prints(t, "pool", "phones", "--add", "phone-3", "--add", "phone-4"), "first policies")

	out := l.prints(t, "pool", "phones", "--out", "phone-1", "--reason", "display broken")
	require.Regexp(t, `(?m)^phone-1 +out of service \(display broken\), still held +order-1 +`, out)
	require.Regexp(t, `(?m)^phone-1 is still held: order-1 holds phones \(member phone-1, which is out of service: display broken\) for .*; it ends by itself, or by lockstep release phones order-1 `, out)
	out = l.prints(t, "pool", "phones", "--remove", "phone-1", "--remove", "phone-2")
	require.Regexp(t, `(?m)^phone-1 +removed, still held +order-1 `, out)
	require.Contains(t, out, "phone-1 is still held: order-1 holds phones (member phone-1, which is no longer in the pool)")
	require.NotContains(t, out, "phone-2")

	l.prints(t, "pool", "phones", "--out", "phone-3", "--reason", "lent")
	require.Contains(t, l.prints(t, "pool", "phones", "phone-3", "phone-5", "--replace"), "out of service (lent)", "a member that stays remains out")
	require.Contains(t, l.prints(t, "pool", "phones", "--out", "phone-5", "--reason", "lent"), "no member is in service: requests wait until one is: lockstep pool phones --database "+l.database+" --in MEMBER\n")
	l.prints(t, "pool", "phones", "--in", "phone-3", "--in", "phone-5")
	require.Equal(t, "phone-3", l.poolRequest(t, "order-2", "phones", 0))
	require.Equal(t, "phone-5", l.poolRequest(t, "order-3", "phones", 0))
	require.Empty(t, l.poolRequest(t, "order-4", "phones", 1))

	shown := l.prints(t, "pool", "phones")
	require.Regexp(t, `(?m)^phone-5 +held +order-3 `, shown)
	require.Contains(t, shown, "order-4 waits for phones (any member, priority 1) for ")
	require.NotContains(t, shown, "in force")
	var found inspect.Pool
	require.NoError(t, json.Unmarshal([]byte(l.prints(t, "pool", "phones", "--json")), &found))
	require.Equal(t, "phone-3", found.Members[0].Name)
	require.Equal(t, "order-2", found.Members[0].Holders[0].LockID)
	require.Equal(t, "order-4", found.Waiters[0].LockID)

	deleted := l.prints(t, "pool", "phones", "--delete", "--reason", "no phones any more")
	require.Contains(t, deleted, "phones: removed\n")
	require.Contains(t, deleted, "order-2 holds phones (member phone-3) for ")
	require.Contains(t, l.fails(t, 1, "pool", "phones", "--delete"), `there is no pool "phones"`)
	listed := l.prints(t, "policies")
	require.Regexp(t, `(?m)^  \S+ \S+ UTC  phones: pool of 4: phone-1 \(out: display broken\), phone-2, phone-3, phone-4, by \S+: display broken$`, listed)
	require.Regexp(t, `(?m)^  \S+ \S+ UTC  phones: removed, by \S+: no phones any more$`, listed)
}

func TestPool_WrongInput_ChangesNothing(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "pool", "phones", "phone-1", "phone-2")
	l.prints(t, "pool", "desks", "desk-1")
	l.prints(t, "limit", "printer", "2")
	_, before := l.storedPolicies(t)
	for want, args := range map[string][]string{
		"wants the name of a pool":                             {},
		"are not for a list of members: have \"phone-3\"":      {"phones", "phone-3", "--add", "phone-4"},
		"--replace wants the members":                          {"phones", "--replace"},
		"--add, --remove, --out and --in are not for --delete": {"phones", "--delete", "--add", "phone-3"},
		"--out wants a --reason":                               {"phones", "--out", "phone-1"},
		"--reason is for a change":                             {"phones", "--reason", "why"},
		`"phone-3" is listed twice`:                            {"new", "phone-3", "phone-3"},
		`invalid Policy.Members[2] ""`:                         {"phones", "--add", ""},
		`invalid Policy.Members[0] "": want 1 to 512 bytes`:    {"new", ""},
	} {
		require.Contains(t, l.fails(t, 2, append([]string{"pool"}, args...)...), want)
	}
	for want, args := range map[string][]string{
		`nothing was changed: "phones" is a pool already, with the members phone-1, phone-2; the same command with --replace would add phone-3 and remove phone-1; lockstep pool phones --database `: {"phones", "phone-2", "phone-3"},
		"with --replace would change only their order":                                                                                   {"phones", "phone-2", "phone-1"},
		`"phone-1" is a member of "phones" already`:                                                                                      {"phones", "--add", "phone-1"},
		`"phone-9" is not a member of "phones", whose members are phone-1, phone-2`:                                                      {"phones", "--remove", "phone-9"},
		`"phone-8" is not a member of "phones", whose`:                                                                                   {"phones", "--out", "phone-8", "--reason", "lost"},
		`"phone-7" is not a member of "phones", whose`:                                                                                   {"phones", "--in", "phone-7"},
		`"phone-2" is in service already`:                                                                                                {"phones", "--in", "phone-2"},
		`"desks" would have no member; lockstep pool desks --database ` + l.database + " --delete removes":                               {"desks", "--remove", "desk-1"},
		`there is no pool "phone": lockstep pool phone --database ` + l.database + " MEMBER... makes it; the pools are desks, phones":    {"phone", "--add", "phone-3"},
		`a policy limits "printer" to 2 holders, and a pool has no limit; lockstep limit printer --database ` + l.database + " --remove": {"printer", "printer-1"},
	} {
		require.Contains(t, l.fails(t, 1, append([]string{"pool"}, args...)...), want)
	}
	require.Contains(t, l.fails(t, 2, "pool", "desks", "--add", "phone-1"), `"phone-1": want no member of another pool, which would be granted twice: remove it from the pool "phones" first`)
	for _, args := range [][]string{{"limit", "phones", "3"}, {"limit", "phones", "--remove"}} {
		require.Contains(t, l.fails(t, 1, args...), `"phones" is a pool, which has no limit; lockstep pool phones --database `+l.database+" --delete removes it")
	}
	_, after := l.storedPolicies(t)
	require.Equal(t, before.List, after.List)
	const name = "a\x1b[2J\nb"
	require.Contains(t, l.prints(t, "pool", "hostile", name, "--reason", name), "a\uFFFD[2J\uFFFDb")
}

// Two operators change a pool at the same time.
func TestPool_ConcurrentChanges_AllStand(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "pool", "phones", "phone-0")
	members := []string{"phone-1", "phone-2", "phone-3"}
	var changes sync.WaitGroup
	for _, m := range members {
		changes.Go(func() { l.prints(t, "pool", "phones", "--add", m) })
	}
	changes.Wait()
	_, p := l.storedPolicies(t)
	require.ElementsMatch(t, append(members, "phone-0"), p.List[0].Members)
}

// What a later version has written is not changed.
func TestPool_NotDecoded_IsNotChanged(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "limit", "printer", "2")
	later := bson.D{{Key: "name", Value: "phones"}, {Key: "shelves", Value: bson.A{"shelf-1"}}}
	_, err := l.collection(t).UpdateByID(t.Context(), store.IdentityID, bson.D{{Key: "$push", Value: bson.D{{Key: "policies", Value: later}}}})
	require.NoError(t, err)
	require.Contains(t, l.fails(t, 1, "pool", "phones", "phone-1", "--replace"), `nothing was changed: the policy for "phones" cannot be decoded`)
}

func TestPolicies_JSONWithPools_IsPutBack(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "pool", "phones", "phone-1", "phone-2")
	l.prints(t, "pool", "phones", "--out", "phone-2", "--reason", "display broken")
	text, before := l.storedPolicies(t)
	require.True(t, before.Priorities)
	require.Regexp(t, `(?m)^phones +pool of 2: phone-1, phone-2 \(out: display broken\) +\S+ \S+ UTC +\S+@\S+ +display broken$`, l.prints(t, "policies"))
	file := filepath.Join(t.TempDir(), "policies.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	l.prints(t, "pool", "phones", "phone-7", "--replace")
	require.Contains(t, l.prints(t, "limit", "--from", file), "phones: pool of 2: phone-1, phone-2 (out: display broken)\n")
	_, after := l.storedPolicies(t)
	require.Equal(t, before.List[0].Members, after.List[0].Members)
	require.Equal(t, map[string]string{"phone-2": "display broken"}, after.List[0].Out)
}

func TestPromote_Waiter_IsFirst(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "order-1", "p", "stock")
	l.ask(t, "order-2", "p", "stock")
	l.ask(t, "order-3", "p", "stock")
	refusal := l.fails(t, 1, "promote", "stock", "order-3")
	require.Contains(t, refusal, "priorities are not in force in this collection: lockstep policies --enable --database "+l.database+" --reason 'your reason' brings them into force; from then on builds of Lockstep without policies are refused")
	require.Contains(t, l.fails(t, 2, "policies", "--reason", "why"), "--reason is for --enable")
	require.Contains(t, l.fails(t, 2, "policies", "--enable", "--json"), "--json is not for --enable")
	require.Contains(t, l.prints(t, "policies", "--enable", "--reason", "rush orders"), "priorities are in force everywhere within ten seconds; builds of Lockstep without policies are refused from now on\n")
	require.Equal(t, "priorities are in force already\n", l.prints(t, "policies", "--enable"))
	require.Regexp(t, `(?m)^  \S+ \S+ UTC  priorities: in force, by \S+: rush orders$`, l.prints(t, "policies"))

	code, out, log := l.lockstep(t, "promote", "stock", "order-3", "--reason", "a rush order")
	require.Zero(t, code, log)
	require.Regexp(t, `^order-3 waits for stock \(exclusive, promoted\) for .*, position 1\n$`, out)
	require.Contains(t, log, "a rush order (")
	require.Contains(t, l.prints(t, "why", "order-3", "--no-temporal"), "order-3 waits for stock (exclusive, promoted) for")
	require.Contains(t, l.prints(t, "show", "stock"), "order-2 waits for stock (exclusive) for")
	require.Contains(t, l.fails(t, 1, "promote", "stock", "order-1"), `"order-1" does not wait for "stock": it holds stock (exclusive) for`)
	require.Contains(t, l.fails(t, 1, "promote", "stock", "order-9"), `"order-9" does not wait for "stock"; lockstep show stock --database `+l.database+" lists who does")
	require.Contains(t, l.fails(t, 2, "promote", "stock"), "wants a workflow ID or a lock ID")
}

// A workflow of two namespaces is named by its lock ID. All requests of its steps are promoted.
func TestPromote_Workflow_IsNamedByItsID(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.prints(t, "policies", "--enable")
	const one, two = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11", "1b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"
	l.ask(t, "holder", "p", "stock")
	for _, lockID := range []string{"first", one + "/order", two + "/order", one + "/rush"} {
		r := lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: "p"}}
		if lockID != "first" {
			r.Run = "run"
		}
		l.enter(t, r, lockcore.Exclusive("stock"))
	}
	require.Contains(t, l.fails(t, 1, "promote", "stock", "order"), `several parties of the name "order" wait for "stock"; give the lock ID of one of them: `+one+"/order waits")
	require.Contains(t, promoted(t, l, "rush"), "rush waits for stock (exclusive, promoted)")
	require.Contains(t, promoted(t, l, two+"/order"), "position 2")
}

func promoted(t *testing.T, l *locks, name string) string {
	t.Helper()
	code, out, log := l.lockstep(t, "promote", "stock", name)
	require.Zero(t, code, log)
	return out
}
