package lockcore_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The texts that the fuzzing starts from, and that run in every test run.
var spellings = []string{
	"", "a", "$owner", "a.b", "$$NOW", "$$ROOT", "$t.id", "$", ".", "..", "$.$", `{"$literal":1}`, "\x01\x02\x1b\x7f", "\n\t\r",
	"a\x00b", "\x00", "\xff\xfe", "ü"[:1], "\u202e\ufeff\U0001f512", "$__proto__", "entries.0.lockId",
	strings.Repeat("x", 512), strings.Repeat("x", 513), strings.Repeat("ü", 256), strings.Repeat("ü", 257), strings.Repeat("$", 1024), strings.Repeat("$", 1025),
}

// fuzzed is a collection that the runs of one process share, each with names of its own.
func fuzzed(f *testing.F) fixture {
	f.Helper()
	coll := testenv.Mongo(f).Collection("locks")
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(f, err)
	_, err = l.Steps().TryEnter(f.Context(), request("bystander", lockcore.Exclusive("bystander")))
	require.NoError(f, err)
	return fixture{l.Steps(), coll}
}

// refused reports whether an error is an *InvalidError; then it must name a field, and nothing may have changed.
func (f fixture) refused(t *testing.T, err error, before []string) bool {
	t.Helper()
	if err == nil {
		return false
	}
	invalid := errorAs[*lockcore.InvalidError](t, err)
	require.NotEmpty(t, invalid.Field)
	require.NotEmpty(t, invalid.Bound)
	require.Equal(t, before, contents(t, f.coll))
	return true
}

// FuzzNamesOfARequest passes any text wherever a request takes one: it is refused by the field's name, and nothing
// changes; or it is stored byte by byte.
//
//	go test ./lockcore -run '^$' -fuzz FuzzNamesOfARequest -fuzztime 1m
func FuzzNamesOfARequest(f *testing.F) {
	l := fuzzed(f)
	for i, s := range spellings {
		next := spellings[(i+1)%len(spellings)]
		f.Add(s, "a", "p", "o", "c")
		f.Add("r"+s, s, "p", "o", "c")
		f.Add("r", "a", s, next, s)
		f.Add("r", "a", "p", s, next)
	}
	f.Fuzz(func(t *testing.T, resource, lockID, part, owner, comment string) {
		before := contents(t, l.coll)
		req := lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: lockID, Part: part, Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Owner: owner, Comment: comment,
			Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
		}
		leases, err := l.TryEnter(t.Context(), req)
		if l.refused(t, err, before) {
			return
		}
		d := l.document(t, resource)
		require.Len(t, d.Entries, 1)
		want := entry{LockID: lockID, Part: part, Owner: owner, Comment: comment, Host: d.Entries[0].Host}
		if owner == lockID { // is not stored
			want.Owner = ""
		}
		require.Equal(t, want, d.Entries[0])
		require.Equal(t, resource, leases[0].Resource)
		require.Equal(t, lockID, leases[0].LockID)
		require.Equal(t, part, leases[0].Part)

		waiter := req
		waiter.LockID += "2"
		if len(waiter.LockID) <= 512 {
			queue(t, l.Steps, waiter)
			d = l.document(t, resource)
			require.Len(t, d.Waiters, 1)
			require.Equal(t, [2]string{waiter.LockID, part}, [2]string{d.Waiters[0].LockID, d.Waiters[0].Part})
			require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: waiter.LockID, Resources: []string{resource}, Order: req.Order}))
		}
		leases, err = l.Renew(t.Context(), leases...)
		require.NoError(t, err)
		require.NoError(t, l.Leave(t.Context(), leases...))
		d = l.document(t, resource)
		require.Empty(t, d.Entries)
		require.Empty(t, d.Waiters)
		l.forget(t, resource, before)
	})
}

// FuzzNamesOfWhatEnds passes any text wherever a release, a forced one and a listing take one.
//
//	go test ./lockcore -run '^$' -fuzz FuzzNamesOfWhatEnds -fuzztime 1m
func FuzzNamesOfWhatEnds(f *testing.F) {
	l := fuzzed(f)
	for _, s := range spellings {
		f.Add("r", "a", s)
		f.Add("r", s, "because")
		f.Add(s, "a", s)
	}
	f.Fuzz(func(t *testing.T, resource, lockID, reason string) {
		before := contents(t, l.coll)
		leases, err := l.TryEnter(t.Context(), request(lockID, lockcore.Exclusive(resource)))
		if err == nil {
			err = l.Release(t.Context(), lockcore.Release{
				Force: true, LockID: lockID, Resources: []string{resource}, FirstFence: leases[0].FirstFence, Reason: reason,
			})
			if err == nil {
				d := l.document(t, resource)
				require.Equal(t, []record{{LockID: lockID, Reason: reason}}, d.Evidence)
			}
			l.forget(t, resource, before)
		}
		l.refused(t, err, before)
		part := reason
		err = l.Release(t.Context(), lockcore.Release{LockID: lockID, Resources: []string{resource}, Order: lockcore.Order{Schedule: 1, Attempt: 1}, Leaving: &part})
		if !l.refused(t, err, before) {
			d := l.document(t, resource)
			require.Equal(t, []record{{LockID: lockID}}, d.Releases)
			l.forget(t, resource, before)
		}
		for _, filter := range []lockcore.Filter{{Resource: resource}, {Prefix: resource}, {LockID: lockID}, {Owner: lockID}} {
			for s, err := range l.Status(t.Context(), filter) {
				if !l.refused(t, err, before) {
					require.Equal(t, "bystander", s.Resource, "%+v", filter)
				}
			}
		}
		require.Equal(t, before, contents(t, l.coll))
	})
}

type entry struct {
	LockID  string `bson:"lockId"`
	Part    string `bson:"part"`
	Owner   string `bson:"owner"`
	Host    string `bson:"host"`
	Comment string `bson:"comment"`
}

// record is one of what has ended.
type record struct {
	LockID string `bson:"lockId"`
	Reason string `bson:"reason"`
}

type document struct {
	Entries  []entry  `bson:"entries"`
	Waiters  []entry  `bson:"waiters"`
	Evidence []record `bson:"evidence"`
	Releases []record `bson:"releases"`
}

// document returns the document that is stored under exactly this name.
func (f fixture) document(t *testing.T, resource string) document {
	t.Helper()
	var d document
	require.NoError(t, f.coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: resource}}}}).Decode(&d))
	return d
}

// forget removes the document, and checks that it was all that changed.
func (f fixture) forget(t *testing.T, resource string, before []string) {
	t.Helper()
	_, err := f.coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: resource}}}})
	require.NoError(t, err)
	require.Equal(t, before, contents(t, f.coll))
}
