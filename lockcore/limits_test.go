package lockcore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// contents is every document of a collection, byte by byte.
func contents(t testing.TB, coll *mongo.Collection) []string {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var out []string
	for cursor.Next(t.Context()) {
		out = append(out, string(cursor.Current))
	}
	require.NoError(t, cursor.Err())
	return out
}

// badNames are never accepted as a required name. Except for the empty one, they are also refused as an optional name.
var badNames = map[string]string{
	"empty": "", "513 bytes": strings.Repeat("x", 513), "513 bytes in 257 letters": strings.Repeat("ü", 256) + "x",
	"NUL": "a\x00b", "invalid UTF-8": "a\xffb", "half a letter": "ü"[:1],
}

func TestRequest_BeyondBounds_IsRefusedByName(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	enter(t, l.Steps, request("holder", lockcore.Exclusive("r")))
	before := contents(t, l.coll)

	refuse := func(what, field string, err error) {
		t.Helper()
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, what)
		require.ErrorIs(t, err, lockcore.ErrInvalid, what)
		require.Equal(t, field, invalid.Field, what)
		require.NotEmpty(t, invalid.Value, what)
		require.NotEmpty(t, invalid.Bound, what)
		require.Less(t, len(invalid.Error()), 500, "what was passed is shortened")
	}
	for what, c := range badRequests() {
		for _, queue := range []bool{false, true} {
			_, err := enterOrTry(t.Context(), l.Steps, c.req, queue)
			refuse(what, c.field, err)
		}
		_, err := l.Acquire(t.Context(), c.req)
		refuse(what, c.field, err)
		_, err = l.TryAcquire(t.Context(), c.req)
		refuse(what, c.field, err)
	}
	hundredAndOne := make([]string, 101)
	for i := range hundredAndOne {
		hundredAndOne[i] = fmt.Sprint(i)
	}
	for what, id := range badLockIDs {
		refuse(what, "Release.LockID", l.Release(t.Context(), lockcore.Release{LockID: id, Resources: []string{"r"}}))
		if id != "" {
			refuse(what, "Filter.LockID", firstStatus(t.Context(), l.Steps, lockcore.Filter{LockID: id}))
			refuse(what, "Filter.Owner", firstStatus(t.Context(), l.Steps, lockcore.Filter{Owner: id}))
		}
	}
	for what, name := range badNames {
		refuse(what, "Release.Resources[1]", l.Release(t.Context(), lockcore.Release{LockID: "holder", Resources: []string{"r", name}, Order: lockcore.LastAttempt(9)}))
		force := func(lockID, reason string, resources ...string) error {
			return l.Release(t.Context(), lockcore.Release{Force: true, LockID: lockID, Resources: resources, FirstFence: 1, Reason: reason})
		}
		refuse(what, "Release.Resources[0]", force("holder", "because", name))
		refuse(what, "Release.Reason", force("holder", name, "r"))
		if name == "" {
			continue
		}
		for field, f := range map[string]lockcore.Filter{
			"Filter.Resource": {Resource: name}, "Filter.Prefix": {Prefix: name},
		} {
			refuse(what, field, firstStatus(t.Context(), l.Steps, f))
		}
	}
	refuse("no resource", "len(Release.Resources)", l.Release(t.Context(), lockcore.Release{LockID: "holder"}))
	refuse("101 resources", "len(Release.Resources)", l.Release(t.Context(), lockcore.Release{LockID: "holder", Resources: hundredAndOne}))
	refuse("what ends is not said", "Release.Order", l.Release(t.Context(), lockcore.Release{LockID: "holder", Resources: []string{"r"}}))
	refuse("no such state", "Filter.States[0]", firstStatus(t.Context(), l.Steps, lockcore.Filter{States: []lockcore.State{"gone"}}))
	require.Equal(t, before, contents(t, l.coll))
}

const tenYears = 10 * 365 * 24 * time.Hour

type badRequest struct {
	field string
	req   lockcore.StepRequest
}

// badLockIDs are badNames with the bound of lock IDs and owners.
var badLockIDs = map[string]string{
	"empty": "", "1501 bytes": strings.Repeat("x", 1501), "NUL": "a\x00b", "invalid UTF-8": "a\xffb",
}

// badRequests returns requests of the holder's own lock ID, or of a lock ID without a hold. Each would change something if it were sent.
func badRequests() map[string]badRequest {
	good := func() lockcore.StepRequest { return request("holder", lockcore.Exclusive("r")) }
	bad := map[string]badRequest{}
	add := func(what, field string, change func(*lockcore.StepRequest)) {
		req := good()
		change(&req)
		bad[what] = badRequest{field, req}
	}
	for what, id := range badLockIDs {
		add("lock ID: "+what, "Request.LockID", func(r *lockcore.StepRequest) { r.LockID = id })
	}
	for what, name := range badNames {
		add("resource: "+what, "Request.Resources[1].Name", func(r *lockcore.StepRequest) { r.Resources = append(r.Resources, lockcore.Exclusive(name)) })
		if name == "" {
			continue
		}
		add("part: "+what, "Request.Part", func(r *lockcore.StepRequest) { r.Part = name })
		add("owner: "+what, "Request.Owner", func(r *lockcore.StepRequest) { r.Owner = name })
		if len(name) < 513 {
			add("comment: "+what, "Request.Comment", func(r *lockcore.StepRequest) { r.Comment = name })
		}
	}
	add("comment of 1025 bytes", "Request.Comment", func(r *lockcore.StepRequest) { r.Comment = strings.Repeat("x", 1025) })
	for _, ttl := range []time.Duration{1, 99 * time.Millisecond, -1, -time.Hour, tenYears + 1} {
		add(fmt.Sprint("TTL of ", ttl), "Request.TTL", func(r *lockcore.StepRequest) { r.TTL = ttl })
		add(fmt.Sprint("TTL of the hold of ", ttl), "Request.HoldTTL", func(r *lockcore.StepRequest) { r.Keep, r.HoldTTL = true, ttl })
	}
	add("hold shorter than its parts", "Request.HoldTTL", func(r *lockcore.StepRequest) { r.Keep, r.TTL, r.HoldTTL = true, time.Hour, time.Minute })
	add("TTL of a hold that is not kept", "Request.HoldTTL", func(r *lockcore.StepRequest) { r.HoldTTL = time.Hour })
	add("negative wait", "Request.MaxWait", func(r *lockcore.StepRequest) { r.MaxWait = -1 })
	add("wait above ten years", "Request.MaxWait", func(r *lockcore.StepRequest) { r.MaxWait = tenYears + 1 })
	add("schedule beyond 31 bits", "Request.Order.Schedule", func(r *lockcore.StepRequest) { r.Order.Schedule = 1 << 31 })
	add("no resource", "len(Request.Resources)", func(r *lockcore.StepRequest) { r.Resources = nil })
	add("101 resources", "len(Request.Resources)", func(r *lockcore.StepRequest) {
		for i := range 100 {
			r.Resources = append(r.Resources, lockcore.Exclusive(fmt.Sprint(i)))
		}
	})
	add("a resource twice", "Request.Resources[2].Name", func(r *lockcore.StepRequest) {
		r.Resources = append(r.Resources, lockcore.Exclusive("s"), lockcore.Shared("r"))
	})
	add("no such mode", "Request.Resources[0].Mode", func(r *lockcore.StepRequest) { r.Resources[0].Mode = "Q" })
	add("negative limit", "Request.Resources[0].Limit", func(r *lockcore.StepRequest) { r.Resources[0] = lockcore.SharedLimit("r", -1) })
	add("limit above a million", "Request.Resources[0].Limit", func(r *lockcore.StepRequest) { r.Resources[0] = lockcore.SharedLimit("r", 1_000_001) })
	add("take over without a run", "Request.TakeOver", func(r *lockcore.StepRequest) { r.TakeOver = "one" })
	add("take over from itself", "Request.TakeOver", func(r *lockcore.StepRequest) { r.Run, r.TakeOver = "one", "one" })
	add("run of 513 bytes", "Request.Run", func(r *lockcore.StepRequest) { r.Run = strings.Repeat("x", 513) })
	add("within without a run", "Request.Within", func(r *lockcore.StepRequest) { r.Within = "w" })
	add("within itself", "Request.Within", func(r *lockcore.StepRequest) { r.Run, r.Within = "one", "holder" })
	add("limit in exclusive mode", "Request.Resources[0].Limit", func(r *lockcore.StepRequest) { r.Resources[0].Limit = 1 })
	return bad
}

func TestConfig_BeyondBounds_IsRefusedByName(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{})
	before := contents(t, l.coll)
	for what, c := range map[string]struct {
		field string
		cfg   lockcore.Config
	}{
		"TTL below 100 ms":         {"Config.TTL", lockcore.Config{TTL: 99 * time.Millisecond}},
		"negative TTL":             {"Config.TTL", lockcore.Config{TTL: -1}},
		"negative hold":            {"Config.HoldTTL", lockcore.Config{HoldTTL: -time.Second}},
		"negative claim":           {"Config.ClaimTTL", lockcore.Config{ClaimTTL: -time.Second}},
		"negative waiter":          {"Config.WaiterTTL", lockcore.Config{WaiterTTL: -time.Second}},
		"TTL above ten years":      {"Config.TTL", lockcore.Config{TTL: tenYears + 1, HoldTTL: lockcore.Forever}},
		"hold below 100 ms":        {"Config.HoldTTL", lockcore.Config{HoldTTL: 1}},
		"hold shorter than a part": {"Config.HoldTTL", lockcore.Config{TTL: time.Hour, HoldTTL: time.Minute}},
		"hold above ten years":     {"Config.HoldTTL", lockcore.Config{HoldTTL: tenYears + 1}},
		"claim below 100 ms":       {"Config.ClaimTTL", lockcore.Config{ClaimTTL: 1}},
		"claim above 15 min":       {"Config.ClaimTTL", lockcore.Config{ClaimTTL: 15*time.Minute + 1}},
		"endless claim":            {"Config.ClaimTTL", lockcore.Config{ClaimTTL: lockcore.Forever}},
		"waiter below 1 s":         {"Config.WaiterTTL", lockcore.Config{WaiterTTL: time.Millisecond}},
		"waiter above 1 h":         {"Config.WaiterTTL", lockcore.Config{WaiterTTL: time.Hour + 1}},
		"endless waiter":           {"Config.WaiterTTL", lockcore.Config{WaiterTTL: lockcore.Forever}},
		"negative queue":           {"Config.MaxWaiters", lockcore.Config{MaxWaiters: -1}},
		"queue above 5,000":        {"Config.MaxWaiters", lockcore.Config{MaxWaiters: 5001}},
		"host of 256 bytes":        {"Config.Host", lockcore.Config{Host: strings.Repeat("x", 256)}},
		"host with NUL":            {"Config.Host", lockcore.Config{Host: "a\x00"}},
		"host that is not UTF-8":   {"Config.Host", lockcore.Config{Host: "\xff"}},
	} {
		_, err := lockcore.New(l.coll, c.cfg)
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, what)
		require.Equal(t, c.field, invalid.Field, what)
	}
	_, err := lockcore.New(nil, lockcore.Config{})
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.Equal(t, before, contents(t, l.coll))
}

func TestRequest_WithinBounds_IsAccepted(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("ü", 256)
	l := setup(t, lockcore.Config{
		Host: strings.Repeat("h", 255), TTL: 100 * time.Millisecond, HoldTTL: 100 * time.Millisecond, ClaimTTL: 15 * time.Minute, WaiterTTL: time.Hour, MaxWaiters: 5000,
	})
	_, err := lockcore.New(l.coll, lockcore.Config{TTL: tenYears, HoldTTL: tenYears, ClaimTTL: 100 * time.Millisecond, WaiterTTL: time.Second, MaxWaiters: 1})
	require.NoError(t, err)
	req := lockcore.StepRequest{
		MaxWait: tenYears,
		Caller:  lockcore.Caller{LockID: strings.Repeat("ü", 750), Part: longest, Order: lockcore.LastAttempt(1<<31 - 1)}, Owner: strings.Repeat("o", 512), Comment: strings.Repeat("c", 1024),
		TTL: lockcore.Forever, Keep: true, HoldTTL: lockcore.Forever,
	}
	for i := range 100 {
		req.Resources = append(req.Resources, lockcore.SharedLimit(longest[:509]+fmt.Sprintf("%03d", i), 1_000_000))
	}
	leases, err := l.TryEnter(t.Context(), req)
	require.ErrorIs(t, err, lockcore.ErrInvalid, "a name that ends in half a letter")
	require.Empty(t, leases)
	for i := range req.Resources {
		req.Resources[i].Name = fmt.Sprintf("%03d", i) + longest[:508] + "x"
	}
	leases = enter(t, l.Steps, req)
	require.Len(t, leases, 100)
	require.NoError(t, l.Leave(t.Context(), leases...))
}

type stored struct{ Held, Waiters bson.RawValue }

// state lists the holders and waiters of the only document.
func state(t *testing.T, coll *mongo.Collection) stored {
	t.Helper()
	var d stored
	require.NoError(t, coll.FindOne(t.Context(), bson.D{}).Decode(&d))
	return d
}

// TestDocument_FullestQueue_FitsTheLimit fills a queue with the longest of everything.
func TestDocument_FullestQueue_FitsTheLimit(t *testing.T) {
	t.Parallel()
	l := setup(t, lockcore.Config{MaxWaiters: 1})
	long := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("x", 508) }
	lockID := strings.Repeat("l", 1500)
	enter(t, l.Steps, request(long(0), lockcore.Exclusive("r")))
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: long(2), Order: lockcore.Order{Attempt: 1}}, Owner: long(3), Resources: []lockcore.Resource{lockcore.Exclusive("r")}}
	queue(t, l.Steps, req)
	const most, limit = 5000, 16 << 20
	require.Less(t, most*len(state(t, l.coll).Waiters.Value), limit*7/8)
}

// An empty lease once wrote a document without a name.
func TestLeave_EmptyLease_IsRefused(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	for name, err := range map[string]error{
		"Leave": l.Leave(t.Context(), lockcore.Lease{}),
		"LeaveQueue": func() error {
			_, err := l.LeaveQueue(t.Context(), lockcore.Lease{})
			return err
		}(),
		"Renew": func() error {
			_, err := l.Renew(t.Context(), lockcore.Lease{})
			return err
		}(),
		"Refresh": l.Refresh(t.Context(), lockcore.Lease{}),
	} {
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, name)
	}
	require.Empty(t, e.commands())
}

func TestSharedLimit_Zero_IsRefused(t *testing.T) {
	t.Parallel()
	l, _ := inMemory(t, lockcore.Config{})
	_, err := l.TryEnter(t.Context(), request("a", lockcore.SharedLimit("r", 0)))
	invalid := errorAs[*lockcore.InvalidError](t, err)
	require.Equal(t, "Request.Resources[0].Limit", invalid.Field)
	require.Equal(t, "0", invalid.Value)
	enter(t, l, request("a", lockcore.Shared("r")))
}

func TestRequest_MeaninglessOrder_IsRefused(t *testing.T) {
	t.Parallel()
	l, e := inMemory(t, lockcore.Config{})
	refused := func(err error, field, value string) {
		t.Helper()
		invalid := errorAs[*lockcore.InvalidError](t, err)
		require.Equal(t, field, invalid.Field)
		require.Equal(t, value, invalid.Value)
		require.NotEmpty(t, invalid.Bound)
	}
	for _, part := range []string{"", "step"} {
		req := request("a", lockcore.Exclusive("r"))
		req.Part = part
		_, err := l.Enter(t.Context(), req)
		refused(err, "Request.Order", "0.0")
	}
	part := "step"
	release := lockcore.Release{LockID: "a", Resources: []string{"r"}, Leaving: &part}
	refused(l.Release(t.Context(), release), "Release.Leaving", `"step"`)
	release.Order = lockcore.LastAttempt(math.MaxInt32 + 1)
	refused(l.Release(t.Context(), release), "Release.Order.Schedule", "2147483648")
	// All plain requests have such orders: the release would end plain requests that other callers made with the lock ID.
	plain := lockcore.Release{LockID: "a", Resources: []string{"r"}, Order: lockcore.Order{Attempt: 1}}
	refused(l.Release(t.Context(), plain), "Release.Order", "0.1")
	require.Empty(t, e.commands())
}
