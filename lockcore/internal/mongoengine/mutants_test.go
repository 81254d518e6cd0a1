package mongoengine_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

var update = flag.Bool("update", false, "write MUTANTS.md anew")

// mutant is the engine with one rule broken on the way to the database.
type mutant struct {
	// breaks is the rule or invariant, and how what is broken.
	breaks, how string
	rewrite     rewrite
	// killer is the scenario that notices.
	killer string
}

// shortForm is what mutants break that are played by processes which know nothing of the resource.
const shortForm = "short form"

// mutants are ordered by what they break.
var mutants = []mutant{
	{"I1", "the living keep nobody out", instead(mongoengine.Alive, false), "I1/nobody is let in beside an exclusive part that may trust"},
	{"I1", "other lock IDs keep nobody out", instead(mongoengine.Others, false), "I1/an exclusive request is not let in beside parts that share"},
	{"I1", "what drains ends at once", instead(mongoengine.Drained, mongoengine.EndsAtOnce), "I1/a part that was cut off still keeps others out"},
	{"I1", "what drains without an end ends at once", instead(mongoengine.Drained, mongoengine.DrainedToEnd), "draining/a part without end that is cut off keeps others out as long as it may trust"},
	{"I1", "expired exclusive holds stay beside those who share", instead(mongoengine.ExclusiveEntry, false), "I1/an expired exclusive hold does not come back beside those who share"},
	{"I1", "displaced holds stay", field("t.x", bson.A{}), "I1/an expired hold does not come back beside whom it made room for"},
	{"I2", "the limit of a request is not looked at", instead("$t.room", engine.Unlimited), "I2/a limit counts all others that are live: holds, drains and claims"},
	{"I2", "the limit of who waits is not looked at", instead("$t.d.limit", engine.Unlimited), "I2/a limit holds for those who wait"},
	{"I3", "a fence is given twice", instead(mongoengine.NextFence, "$fence"), "I3/fences strictly increase over grants, upgrades, retakes and claims"},
	{"I3", "the fence does not follow the time", instead(mongoengine.NextFence, mongoengine.FenceAlone), "I3/the fence is never below the time, so that it grows when a document was removed"},
	{"I4", "newcomers do not look at the queue", instead(mongoengine.NobodyWaits, true), "I4/who comes later and could go does not go ahead of who waits"},
	{"I4", "newcomers go to the head of the queue", operator("$concatArrays", func(arg any) (any, bool) {
		lists, ok := arg.(bson.A)
		if !ok || len(lists) != 3 || !reflect.DeepEqual(lists[0], sent(mongoengine.Before)) {
			return nil, false
		}
		return bson.D{{Key: "$concatArrays", Value: bson.A{lists[1], lists[0], lists[2]}}}, true
	}), "I4/the queue is served in its order"},
	{"I5", "other lock IDs are taken for one's own", instead(mongoengine.OwnID, true), "I5/release touches only its lock ID, up to its order"},
	{"I5", "other parts are taken for one's own", instead(mongoengine.OwnPart, true), "I5/renew, leave and withdraw touch only the part and order that they name"},
	{"I5", "the places of others are taken for one's own", instead(mongoengine.OwnPlace, true), "I5/renew, leave and withdraw touch only the part and order that they name"},
	{"I5", "other orders are taken for the one that is named", instead(mongoengine.SameOrder, true), "I5/renew, leave and withdraw touch only the part and order that they name"},
	{"I5", "a release knows no order", instead(mongoengine.UpToOrder, true), "I5/release touches only its lock ID, up to its order"},
	{"I5", "a batch renews what is left of it", instead(mongoengine.AllThere, true), "RenewAll/of one document all are extended, or none"},
	{"I6", "nothing is remembered of what ended", instead(mongoengine.Remembered, "$released"), "I6/a late copy of a request changes nothing"},
	{"I6", "what ended is not looked at", instead(mongoengine.OverFrom, false), "I6/a late copy of a request changes nothing"},
	{"I6", "a later request of the same part is not looked at", instead(mongoengine.LaterStands, nil), "rule 2/an order that was superseded is refused and changes nothing"},
	{"I6", "when a request was issued is not looked at", instead(mongoengine.TooLate, false), "I6/a request that comes too late after it was issued is refused, though nothing remembers it"},
	{"I6", "what was cut off is not looked at", instead(mongoengine.WasCutOff, false), "rule 2/an order below one that waits, or was cut off, is refused and changes nothing"},
	{"I6", "a later request that waits is not looked at", instead("$t.was.order", nil), "rule 2/an order below one that waits, or was cut off, is refused and changes nothing"},
	{"I5", "a hold that others entered is taken back", instead(mongoengine.NotJoined, true), "leave/it takes back no hold that another request has entered since, though that has left"},
	{"I5", "a release by fence ends whatever the lock ID holds", instead(mongoengine.OfHold, mongoengine.OwnID), "release/of a hold by its first fence, a repetition ends nothing that began later"},
	{"I8", "the superseded part is not cut off", instead(mongoengine.CutsOffPart, nil), "I8/a part that was reported lost is not renewed again"},
	{"I8", "displaced holds are not looked for", instead(mongoengine.WasEvicted, false), "I8/a hold that was displaced is reported lost each time, until it is taken anew"},
	{"I8", "displaced holds leave no record", operator("$map", func(arg any) (any, bool) {
		m, ok := arg.(bson.D)
		return bson.A{}, ok && m[0].Value == "$t.x"
	}), "I8/a hold that was displaced is reported lost each time, until it is taken anew"},
	{"I8", "what was forgotten of the evidence is not said", operator("$arrayElemAt", func(arg any) (any, bool) {
		items, ok := arg.(bson.A)
		return nil, ok && items[1] == int32(-engine.MaxEvicted-1)
	}), "I8/records of displaced holds are bounded, the oldest go first"},
	{"I9", "the dead keep others out", instead(mongoengine.Alive, true), "I9/a dead holder delays others no longer than its own TTL"},
	{"I9", "dead waiters stay", instead(mongoengine.FreshQueue, "$waiters"), "I9/dead waiters do not keep newcomers out, nor count in the queue"},
	{"I9", "who is overdue is granted claims", instead(mongoengine.Awake, true), "queue/who is overdue is passed over, by those behind it and by newcomers, and keeps its place"},
	{"I9", "who is overdue keeps newcomers out", instead(mongoengine.NobodyWaits, mongoengine.QueueEmpty), "queue/who is overdue is passed over, by those behind it and by newcomers, and keeps its place"},
	{"I9", "claims have no end", instead(mongoengine.ClaimEnd, mongoengine.Never), "I9/a dead claim delays others no longer than the claim's TTL"},
	{"I9", "claims come to stand as long as it takes", instead("$t.longest", int64(10*time.Hour/time.Millisecond)), "claim/each that is slept through makes the next stand twice as long, up to four times the first"},
	{"I9", "dead claims stay for ever", instead(mongoengine.Lives, true), "I9/a dead claim whose place is given up goes"},
	{"I9", "nobody settles", field("t.c", bson.A{}), "settle/every write of a document serves its queue"},
	{"I10", "what a caller passes is no literal", operator("$literal", func(arg any) (any, bool) { return arg, true }), "I10/what a caller passes is stored as it is, and names nothing"},
	{"I8", "what drains is renewed", instead(mongoengine.Running, true), "I8/a part that was reported lost is not renewed again"},
	{"renew", "a promise is what the last renewal makes it", operator("$max", func(arg any) (any, bool) {
		ends, ok := arg.(bson.A)
		if !ok || len(ends) != 2 || ends[0] != mongoengine.Expiry {
			return nil, false
		}
		return ends[1], true
	}), "renew/one that began before the grant shortens no promise"},
	{"rule 1", "the same request is granted again", operator("$eq", func(arg any) (any, bool) {
		sides, _ := arg.(bson.A)
		part, ok := sides[0].(bson.A)
		return false, ok && part[0] == "$t.m.order"
	}), "rule 1/the same part and order again gets the same answer"},
	{"rule 3", "a lock ID does not join its own hold", either(instead(mongoengine.HeldAlone, false), instead(mongoengine.HeldAnything, false)), "rule 3/another part of the lock ID joins its hold with its fence"},
	{"rule 4", "an upgrade waits behind the queue", either(instead(mongoengine.GoesAhead, "$t.was.place"), instead(mongoengine.HasTurn, mongoengine.HasTurnOfQueue)), "rule 4/an upgrade waits for the others who share, ahead of the queue"},
	{"rule 4", "an upgrade that could go does not go ahead of the queue", instead(mongoengine.HasTurn, mongoengine.HasTurnOfQueue), "rule 4/a lock ID that shares with nobody upgrades ahead of the queue"},
	{"rule 4", "upgrades queue like others", field("ahead", "$$REMOVE"), "rule 4/upgrades are ahead of the queue, first come first served among them, and also if it is full"},
	{"rule 4", "a full queue refuses upgrades", instead(mongoengine.NeedsNoRoom, "$t.was"), "rule 4/upgrades are ahead of the queue, first come first served among them, and also if it is full"},
	{"rule 5", "a kept hold is none", instead(mongoengine.IsKept, false), "kept/that somebody came is a sign of life, whatever the answer"},
	{"rule 6", "the queue has no bound", instead("$t.most", engine.Unlimited), "rule 6/a full queue takes nobody, and refreshes who is in it"},
	{"rule 6", "claims are not told from places", instead(mongoengine.AnyClaim, false), "rule 6/a refresh takes a lapsed claim back to the head of the queue"},
	{"claim", "who slept through one is given no more time", instead(mongoengine.TwiceAsLong, "$t.claim"), "claim/who slept through one is granted by the second, though its slot comes as late as before"},
	{"claim", "a place that is refreshed forgets what its sleeper slept through", field("claimTTL", "$$REMOVE"), "claim/each that is slept through makes the next stand twice as long, up to four times the first"},
	{"claim", "one whose place is over goes ahead of the queue", instead(mongoengine.StandingClaim, mongoengine.AnyClaim), "claim/one whose place is over does not let its request in ahead of the queue"},
	{"I12", "verdicts are not looked for", instead("$t.was.verdict", nil), "withdraw/it takes one request out of the queue, and its part is told why until it leaves, whatever its order"},
	{"I12", "verdicts are told once", instead(mongoengine.PlaceGoes, mongoengine.EndsVerdict), "withdraw/it takes one request out of the queue, and its part is told why until it leaves, whatever its order"},
	{"I12", "who was taken out of the queue is served", instead(engine.LongAgo, engine.Never), "withdraw/who was taken out of the queue gets no claim, is in nobody's way, and may leave"},
	{"settle", "limits behind the first one's are not looked at", instead(mongoengine.SameLimit, true), "settle/no request is granted with those ahead of it that asks for a smaller limit"},
	{"settle", "what expired is counted beside the first alone", operator("$setUnion", func(arg any) (any, bool) {
		ids, ok := arg.(bson.A)
		if !ok || len(ids) != 3 {
			return nil, false
		}
		return bson.D{{Key: "$setUnion", Value: bson.A{ids[0], ids[2]}}}, true
	}), "settle/an expired hold goes if it would exceed the limit beside all who are granted at once"},
	{"settle", "claims are made beside the own exclusive hold", instead(mongoengine.SomeExclusive, mongoengine.OtherExclusive), "settle/no claims beside an exclusive holder, not even its own"},
	{"settle", "an exclusive hold that has expired is taken to be over", instead(mongoengine.HeldExclusively, false), "settle/a claim beside its own exclusive hold that has expired stands alone: the hold may come back"},
	{"expiry", "a crowd is none", either(instead(engine.Crowd, engine.Unlimited), instead(int64(engine.Crowd), engine.Unlimited)), "expiry/shared holds that have expired go where they are a crowd, and not before"},
	{"after", "what a release or a leave ended is not told", operator("$concatArrays", func(arg any) (any, bool) {
		lists, ok := arg.(bson.A)
		return "$t.x", ok && lists[0] == "$t.a" && lists[len(lists)-1] == "$t.x"
	}), "after/a claim tells of the hold whose end let it in, and the part that confirms it keeps that"},
	{"after", "what expired is not told", operator("$filter", func(arg any) (any, bool) {
		f, ok := arg.(bson.D)
		return bson.A{}, ok && f[0].Value == "$t.x" && reflect.DeepEqual(f[1].Value, mongoengine.Tells)
	}), "after/a hold that expired and makes room is told like one that was released"},
	{"after", "a part stands for its hold", operator("$filter", func(arg any) (any, bool) {
		f, ok := arg.(bson.D)
		return f[0].Value, ok && reflect.DeepEqual(f[1].Value, mongoengine.Tells)
	}), "after/a kept hold has the fence with which it began, and the trace of who entered last"},
	{"after", "a kept hold has the fence of who entered last", instead(mongoengine.Began, mongoengine.LastFence), "after/a kept hold has the fence with which it began, and the trace of who entered last"},
	{"after", "the part that confirms a claim forgets it", instead("$t.was.after", "$$REMOVE"), "after/a claim tells of the hold whose end let it in, and the part that confirms it keeps that"},
	{"evidence", "what became of the party's hold is not told", field("evidence", false), "evidence/the answer to a request that is busy says what became of its party's hold"},
	{"gone", "places are not looked for", instead(mongoengine.HeldAndQueue, "$held"), "gone/a leave tells of the place that it gives up, once"},
	{"List", "what is contended or kept is not marked", field("attn", bson.A{}), "List/what is contended or kept is listed without plain holds"},
	{"run", "another run of the party is not looked at", instead(mongoengine.IsOtherRun, false), "run/another run of the party is answered with the label of the one that speaks, and changes nothing"},
	{"run", "which run was replaced is not looked at", instead(mongoengine.WasReplaced, false), "run/a label that was replaced never returns"},
	{"run", "what is cut off lets its own party in", instead(mongoengine.CutOff, mongoengine.Drained), "run/a running part of the run before keeps its own party out until it has left"},
	{"run", "a release ends what any run has", instead(mongoengine.OwnLabel, true), "run/a release of the run before ends nothing of the next"},
	{"run", "a commit is known by its party alone", instead(mongoengine.Committed, "$t.id"), "run/a release by a run is known also after many others"},
	{"used", "when a hold began is not looked at", instead(mongoengine.BegunInTime, true), "used/what is not kept, began later, or is another run's stands, and nothing is remembered"},
	{"undo", "a step that is undone may come back", instead(mongoengine.IsUndone, false), "undo/a step that is undone comes too late, whatever its order, also one that drained before"},
	{"within", "what its workflow keeps is in a step's way", instead(mongoengine.BesideWithin, mongoengine.Others), "within/what a workflow keeps does not keep its own step out, and nobody else gets in"},
	{"within", "a step waits behind those who wait for its workflow", instead("$t.around", false), "within/the step goes ahead of the queue as long as its workflow keeps the resource"},
	{"within", "a step displaces its own workflow", instead(mongoengine.Around, false), "within/a step displaces nothing of its own workflow, though a part of it has died"},
	{shortForm, "who holds is not looked at", instead(mongoengine.NothingHeld, true), "I1/nobody is let in beside an exclusive part that may trust"},
	{shortForm, "who waits is not looked at", instead(mongoengine.NothingWaits, true), "withdraw/its part is told also if nobody holds any more"},
	{shortForm, "who was displaced is not looked for", instead(mongoengine.NeverEvicted, true), "I8/a hold that was displaced is reported lost each time, until it is taken anew"},
	{shortForm, "what was undone is not looked at", instead(mongoengine.NeverUndone, true), "undo/a step that is undone comes too late also if nobody holds any more"},
	{shortForm, "what ended is not looked at", instead(mongoengine.NotOver, true), "rule 2/an order that left is refused and changes nothing"},
	{shortForm, "when a request was issued is not looked at", instead(mongoengine.TooLate, false), "I6/a request that comes too late after it was issued is refused, though nothing remembers it"},
	{shortForm, "a part ends though others wait", instead(mongoengine.OnlyKept, true), "I4/readers do not starve writers"},
	{shortForm, "a hold ends though others wait", instead(mongoengine.PlainHoldsOnly, true), "release/of a hold by its first fence serves the queue"},
	{shortForm, "a hold ends though other parts of it run", operator("$eq", func(arg any) (any, bool) {
		sides, ok := arg.(bson.A)
		if !ok || !reflect.DeepEqual(sides[1], bson.A{"$t.is"}) {
			return nil, false
		}
		return bson.D{{Key: "$in", Value: bson.A{"$t.is", sides[0]}}}, true
	}), "release/of a hold by its first fence lets its other parts drain"},
	{shortForm, "what was used ends though others wait", instead(mongoengine.OnlyKeptStands, true), "used/the next in line is served"},
	{shortForm, "when what was used began is not looked at", instead(mongoengine.BegunInTime, true), "used/what is not kept, began later, or is another run's stands, and nothing is remembered"},
	{shortForm, "a part of another order is let go", notNamed("$$this.order", 2), "release/of a hold by its first fence lets a part of another order drain"},
	{shortForm, "whose run's hold it is is not looked at", notNamed("$$this.label", 4), "run/a release of the run before, by the fence of the next one's hold, ends nothing"},
	{shortForm, "which hold is named is not looked at", notNamed("$$this.first", 3), "release/of a hold by its first fence ends nothing of the one that the same request began anew"},
	{shortForm, "what stands beside plain holds is not looked at", operator("$setDifference", func(any) (any, bool) { return "$attn", true }), "List/what is contended or kept is listed without plain holds"},
	{"every answer is a write", "writes are not counted", either(instead(mongoengine.CountWrite, "$seq"), instead(mongoengine.CountShortWrite, "$seq")), "rule 5/what is free is granted"},
}

// notNamed takes what a short release says of a part for what the part is: the field at a place in its list.
func notNamed(field string, at int32) rewrite {
	return operator("$map", func(arg any) (any, bool) {
		m, ok := arg.(bson.D)
		if !ok || m[0].Value != "$t.a" || len(m) != 2 {
			return nil, false
		}
		named, ok := m[1].Value.(bson.A)
		if !ok || len(named) <= int(at) || named[at] != field {
			return nil, false
		}
		named = slices.Clone(named)
		named[at] = bson.D{{Key: "$arrayElemAt", Value: bson.A{"$t.is", at}}}
		return bson.D{{Key: "$map", Value: bson.D{m[0], {Key: m[1].Key, Value: named}}}}, true
	})
}

// TestMutantsAreCaught breaks one rule after the other, and expects the suite to notice: the scenario that the page
// names, for what it finds and not because the database refused a pipeline.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	scenarios := map[string]lockcoretest.Scenario{}
	for _, s := range lockcoretest.Scenarios() {
		scenarios[s.Name] = s
	}
	for _, m := range mutants {
		t.Run(m.breaks+"/"+m.how, func(t *testing.T) {
			t.Parallel()
			s, ok := scenarios[m.killer]
			require.True(t, ok, "there is no scenario %q", m.killer)
			e, tampered := m.on(t, h.coll)
			why := failure(t, s, e, m.how)
			require.NotZero(t, tampered.changed.Load(), "the mutant changes nothing: what it looks for is not sent any more")
			require.NotEmpty(t, why, "the mutant survived %q", m.killer)
			require.False(t, strings.HasPrefix(why, lockcoretest.EngineFailed), why)
		})
	}
}

// on is the mutant on a collection.
func (m mutant) on(t *testing.T, coll *mongo.Collection) (harness, *tamperer) {
	t.Helper()
	dialer := &tamperer{rewrite: m.rewrite}
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetDialer(dialer))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	coll = c.Database(coll.Database().Name()).Collection(coll.Name())
	return harness{Engine: mongoengine.New(coll, 24*time.Hour), coll: coll, forgets: m.breaks == shortForm}, dialer
}

// failure plays a scenario, and returns how it failed; nothing where it did not.
func failure(t *testing.T, s lockcoretest.Scenario, h lockcoretest.Harness, resource string) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(r, h, resource)
	}()
	<-done
	return r.why
}

// recorder takes down what would have failed a test.
type recorder struct {
	testing.TB
	why string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

const page = "MUTANTS.md"

// TestPageOfMutantsIsCurrent holds MUTANTS.md to the table:
//
//	go test ./lockcore/internal/mongoengine -run Mutants -update
func TestPageOfMutantsIsCurrent(t *testing.T) {
	t.Parallel()
	want := mutantsPage()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run the tests with -update")
}

func TestEveryInvariantHasAMutant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"I1", "I2", "I3", "I4", "I5", "I6", "I8", "I9", "I10", "I12"} {
		require.True(t, slices.ContainsFunc(mutants, func(m mutant) bool { return m.breaks == name }), name)
	}
	require.Greater(t, len(mutants), 20)
}

func mutantsPage() string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.breaks, m.how, m.killer)
	}
	return b.String()
}

const pageHead = `# Mutants

Tests that pass prove little until they were seen to fail. Each row is a rule of the lock engine that was broken on purpose:
a test connection rewrites the pipeline between the driver and the database, so that what is mutated is what
production sends. The last column is the scenario of the conformance suite, in ` + "`lockcore/lockcoretest`" + `, that notices. A mutant
that survives, one that changes nothing, and one that the database refuses fail the test ` + "`TestMutantsAreCaught`" + `.

The invariants are those of package ` + "`lockcoretest`'s `Invariants`" + `. I7, that what is said to be held was written by a majority, is
no rule of the pipelines: ` + "`TestEveryWriteAsksForAMajorityAndTheJournalAndEveryReadForAMajority`" + ` reads the commands.

This page is written by

    go test ./lockcore/internal/mongoengine -run Mutants -update

| what is broken | how | what notices |
| --- | --- | --- |
`
