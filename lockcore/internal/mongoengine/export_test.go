package mongoengine

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// The expressions of the pipelines that mutants change, by what they mean.
var (
	Alive, Holds, OwnID, Others, OwnPart, Running, IsKept, Lives expr = alive, holds, ownID, others, ownPart, running, isKept, lives

	Awake           expr = awake
	OwnPlace        expr = eq(ownPlace, me)
	NextFence       expr = nextFence
	FenceAlone      expr = add("$fence", int64(1))
	Drained         expr = drained
	EndsAtOnce      expr = doc(v("state", engine.StateDraining), v("expiresAt", "$$NOW"))
	DrainedToEnd    expr = doc(drained[0], v("expiresAt", op("$min", "$$this.expiresAt", add("$$NOW", "$$this.ttl"))))
	ExclusiveEntry  expr = exclusive
	FreshQueue      expr = fresh.Value
	Remembered      expr = remember.Value
	ClaimEnd        expr = claimEnd
	TwiceAsLong     expr = twiceAsLong
	Before          expr = op("$slice", "$waiters", "$t.at")
	CutsOffPart     expr = cond(runs, drained, nil)
	WasCutOff       expr = in(list(engine.StateDraining, "$t.ord"), each("$t.p", list(item("state"), item("order"))))
	TooLate         expr = tooLate
	NotJoined       expr = not(item("joined"))
	OfHold          expr = ofHold
	SameOrder       expr = eq(item("order"), "$t.ord")
	UpToOrder       expr = lte(item("order"), "$t.ord")
	OverFrom        expr = gte(item("order"), "$t.ord")
	LaterStands     expr = maxOf("$t.p.order")
	WasEvicted      expr = wasEvicted
	QueueEmpty      expr = eq("$waiters", none)
	NobodyWaits     expr = nobodyWaits
	HeldAnything    expr = ne("$t.o", none)
	HeldAlone       expr = in(engine.Exclusive, "$t.o.mode")
	Expiry          expr = item("expiresAt")
	CountWrite      expr = add("$seq", int64(1))
	CountShortWrite expr = add("$seq", ifGo(int64(1), int64(0)))
	AllThere        expr = eq(size("$t.n"), size("$t.k"))
	Never           expr = never
	Began           expr = item("first")
	LastFence       expr = item("fence")
	Tells           expr = tells
	HeldAndQueue    expr = heldAndQueue
	StandingClaim   expr = and(isOwnClaim, stillStood)
	AnyClaim        expr = isOwnClaim
	NeedsNoRoom     expr = or("$t.was", acquireKind{}.goesAhead())
	PlaceGoes       expr = and("$t.g", "$t.was.overdueAt")
	EndsVerdict     expr = and(in("$t.did", list(engine.Granted, engine.Joined, engine.Deadlock)), "$t.was.overdueAt")
	// An upgrade is granted, and queued, ahead of the queue.
	HasTurn        expr = or(acquireKind{}.goesAhead(), nobodyWaits)
	HasTurnOfQueue expr = or("$t.was.place", nobodyWaits)
	GoesAhead      expr = acquireKind{}.goesAhead()
	// What the head of the queue may find that is exclusive.
	SomeExclusive   expr = in(engine.Exclusive, "$t.l.mode")
	OtherExclusive  expr = ne(filter("$t.l", and(exclusive, ne(item("lockId"), "$t.d.lockId"))), none)
	SameLimit       expr = sameLimit
	IsOtherRun      expr = isOtherRun
	WasReplaced     expr = wasReplaced
	OwnLabel        expr = ownLabel
	CutOff          expr = cutOff
	IsUndone        expr = isUndone
	Committed       expr = committed
	BesideWithin    expr = besideWithin
	Around          expr = around
	NothingHeld     expr = nothingHeld
	NothingWaits    expr = nothingWaits
	NeverEvicted    expr = neverEvicted
	NeverUndone     expr = neverUndone
	NotOver         expr = notOver
	OnlyKept        expr = onlyKept
	PlainHoldsOnly  expr = plainHoldsOnly
	BegunInTime     expr = begunInTime
	OnlyKeptStands  expr = eq("$attn", list(engine.StateKept))
	HeldExclusively expr = in(list("$t.d.lockId", engine.Exclusive, true), each("$held", list(item("lockId"), item("mode"), holds)))
)

// Forget drops what the last answers told of resources, so that short forms are tried.
func (e *Engine) Forget() {
	for i := range e.taken {
		e.taken[i].Store(false)
		e.awaited[i].Store(false)
	}
}

// Explain asks the server how it would find the documents of a query.
func (e *Engine) Explain(ctx context.Context, q engine.Query) (bson.Raw, error) {
	command := bson.D{{Key: "aggregate", Value: e.coll.Name()}, {Key: "pipeline", Value: listing(e.filterOf(q))}, {Key: "cursor", Value: bson.D{}}}
	return e.coll.Database().RunCommand(ctx, bson.D{{Key: "explain", Value: command}}).Raw()
}

// item is a field of the entry, place or record that a filter or a map looks at.
func item(field string) string {
	variable, _, _ := strings.Cut(running[0].Value.(bson.A)[0].(string), ".")
	return variable + "." + field
}
