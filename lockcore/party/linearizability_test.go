package party_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

const (
	clients      = 6
	resources    = 3
	perClient    = 500
	checkTimeout = 2 * time.Minute
)

// call is a client's request for a lock operation.
type call struct {
	do       verb
	resource int
	client   int
}

type verb string

const (
	takeExclusive verb = "take exclusive"
	takeShared    verb = "take shared"
	renewIt       verb = "renew"
	leaveIt       verb = "leave"
	releaseIt     verb = "release"
)

// reply is the answer that the client received. The fence is 0 if nothing was granted.
type reply struct {
	ok    bool
	fence int64
}

// lockState is a lock as one who sees everything has it: in what way each client holds, and the highest fence.
type lockState struct {
	holds [clients]verb
	fence int64
}

// lockModel is a lock that is shared by many or held by one, and gives greater fences to later holders.
var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, resources)
		for _, op := range history {
			r := op.Input.(call).resource
			parts[r] = append(parts[r], op)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(lockState), input.(call), output.(reply)
		return s.allows(in, out), s.after(in, out)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

func (s lockState) allows(in call, out reply) bool {
	held := s.holds[in.client] != ""
	switch in.do {
	case renewIt:
		return out.ok == held && (!held || out.fence <= s.fence)
	case takeExclusive, takeShared:
		free := true
		for _, how := range s.holds {
			if how == takeExclusive || (how != "" && in.do == takeExclusive) {
				free = false
			}
		}
		return out.ok == free && (!free || out.fence > s.fence)
	default:
		return out.ok
	}
}

func (s lockState) after(in call, out reply) lockState {
	switch {
	case in.do == leaveIt, in.do == releaseIt:
		s.holds[in.client] = ""
	case out.ok && in.do != renewIt:
		s.holds[in.client], s.fence = in.do, out.fence
	}
	return s
}

// TestLocker_ConcurrentHistories_AreLinearizable has several clients, each with a connection of its own, take, renew and give
// up a few locks at once. There must be an order of all that they did, each at a moment between its call and its
// answer, in which one lock after the other could have given these answers.
func TestLocker_ConcurrentHistories_AreLinearizable(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t).Name()
	var mu sync.Mutex
	var history []porcupine.Operation
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		p := &contender{Locker: lockerOn(t, db), client: i, rand: rand.New(rand.NewPCG(uint64(i), 42))}
		wg.Go(func() {
			for range perClient {
				in := p.next()
				called := time.Since(start)
				out, err := p.do(t.Context(), in)
				returned := time.Since(start)
				if err != nil {
					t.Errorf("%+v: %v", in, err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: i, Input: in, Output: out, Call: int64(called), Return: int64(returned)})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, history, clients*perClient)
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(lockModel, history, checkTimeout))
	granted, refused := 0, 0
	for _, op := range history {
		if in := op.Input.(call); in.do == takeExclusive || in.do == takeShared {
			if op.Output.(reply).ok {
				granted++
			} else {
				refused++
			}
		}
	}
	require.Greater(t, granted, 100, "a history in which little was granted shows little")
	require.Greater(t, refused, 100, "and so does one without contention")
}

func lockerOn(t *testing.T, db string) *party.Locker {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	l, err := party.New(c.Database(db).Collection("locks"), party.Config{TTL: time.Hour})
	require.NoError(t, err)
	return l
}

// contender is one client, with what it holds.
type contender struct {
	*party.Locker
	client int
	rand   *rand.Rand
	leases [resources]*party.Lease
}

func (p *contender) next() call {
	in := call{resource: p.rand.IntN(resources), client: p.client}
	if p.leases[in.resource] == nil {
		in.do = []verb{takeExclusive, takeShared, takeShared}[p.rand.IntN(3)]
	} else {
		in.do = []verb{renewIt, leaveIt, releaseIt}[p.rand.IntN(3)]
	}
	return in
}

func (p *contender) do(ctx context.Context, in call) (reply, error) {
	name := fmt.Sprint(in.resource)
	held := p.leases[in.resource]
	switch in.do {
	case takeExclusive, takeShared:
		res := party.Exclusive(name)
		if in.do == takeShared {
			res = party.Shared(name)
		}
		leases, err := p.TryEnter(ctx, request(fmt.Sprint(p.client), res))
		if errors.Is(err, party.ErrBusy) {
			return reply{}, nil
		}
		if err != nil {
			return reply{}, err
		}
		p.leases[in.resource] = &leases[0]
		return reply{ok: true, fence: leases[0].Fence}, nil
	case renewIt:
		leases, err := p.Renew(ctx, *held)
		if errors.Is(err, party.ErrLost) {
			p.leases[in.resource] = nil
			return reply{}, nil
		}
		if err != nil {
			return reply{}, err
		}
		return reply{ok: true, fence: leases[0].Fence}, nil
	case leaveIt:
		p.leases[in.resource] = nil
		return reply{ok: true}, p.Leave(ctx, *held)
	default:
		p.leases[in.resource] = nil
		return reply{ok: true}, p.Release(ctx, party.Release{LockID: held.LockID, Resources: []string{name}, FirstFence: held.FirstFence, Order: held.Order, Leaving: &held.Part})
	}
}

// The control of the test above: the model refuses histories that no lock may have.
func TestLockModel_WrongHistories_AreRefused(t *testing.T) {
	t.Parallel()
	// done is an operation that begins after the one before it has ended.
	type done struct {
		client int
		do     verb
		out    reply
	}
	granted := func(fence int64) reply { return reply{true, fence} }
	refused := reply{}
	good := []done{
		{0, takeShared, granted(5)}, {1, takeShared, granted(6)}, {2, takeExclusive, refused}, {0, renewIt, granted(5)}, {0, leaveIt, granted(0)},
		{1, releaseIt, granted(0)}, {2, takeExclusive, granted(9)}, {1, takeShared, refused}, {1, renewIt, refused},
	}
	check := func(history []done) porcupine.CheckResult {
		var ops []porcupine.Operation
		for i, d := range history {
			ops = append(ops, porcupine.Operation{
				ClientId: d.client, Input: call{do: d.do, client: d.client}, Output: d.out, Call: int64(2 * i), Return: int64(2*i + 1),
			})
		}
		return porcupine.CheckOperationsTimeout(lockModel, ops, checkTimeout)
	}
	require.Equal(t, porcupine.Ok, check(good))
	for name, history := range map[string][]done{
		"second exclusive holder":         append(slices.Clone(good), done{0, takeExclusive, granted(10)}),
		"shared beside exclusive":         append(slices.Clone(good), done{0, takeShared, granted(10)}),
		"renewal after leaving":           append(slices.Clone(good), done{0, renewIt, granted(5)}),
		"loss reported to the holder":     append(slices.Clone(good), done{2, renewIt, refused}),
		"free resource refused":           {{0, takeShared, refused}},
		"fence granted twice":             {{0, takeShared, granted(5)}, {1, takeShared, granted(5)}},
		"smaller fence after a greater":   {{0, takeExclusive, granted(5)}, {0, leaveIt, granted(0)}, {1, takeExclusive, granted(4)}},
		"exclusive granted beside shared": {{0, takeShared, granted(5)}, {1, takeExclusive, granted(6)}},
	} {
		require.Equal(t, porcupine.Illegal, check(history), name)
	}
}
