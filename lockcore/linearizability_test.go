package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	clients      = 6
	resources    = 3
	perClient    = 500
	checkTimeout = 2 * time.Minute
)

// TestLocker_ConcurrentHistories_AreLinearizable has several clients, each with a connection of its own, take, renew and give
// up a few locks at once. There must be an order of all that they did, each at a moment between its call and its
// answer, in which one lock after the other could have given these answers.
func TestLocker_ConcurrentHistories_AreLinearizable(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t).Name()
	var mu sync.Mutex
	var history []linear.Operation
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		p := &contender{Steps: lockerOn(t, db), client: i, rand: rand.New(rand.NewPCG(uint64(i), 42))}
		wg.Go(func() {
			for range perClient {
				op := p.next()
				op.From = time.Since(start)
				err := p.do(t.Context(), &op)
				op.To = time.Since(start)
				if err != nil {
					t.Errorf("%s: %v", op, err)
					return
				}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, history, clients*perClient)
	require.Equal(t, linear.Result{OK: true}, linear.Check(history, checkTimeout))
	granted, refused := 0, 0
	for _, op := range history {
		if op.Do.Takes() {
			if op.OK {
				granted++
			} else {
				refused++
			}
		}
	}
	require.Greater(t, granted, 100, "a history in which little was granted shows little")
	require.Greater(t, refused, 100, "and so does one without contention")
}

func lockerOn(t *testing.T, db string) *lockcore.Steps {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	l, err := lockcore.New(c.Database(db).Collection("locks"), lockcore.Config{TTL: time.Hour})
	require.NoError(t, err)
	return l.Steps()
}

// contender is one client, with what it holds.
type contender struct {
	*lockcore.Steps
	client int
	rand   *rand.Rand
	leases [resources]*lockcore.Lease
}

func (p *contender) next() linear.Operation {
	resource := p.rand.IntN(resources)
	op := linear.Operation{Resource: strconv.Itoa(resource), Client: p.client}
	if p.leases[resource] == nil {
		op.Do = []linear.Verb{linear.TakeExclusive, linear.TakeShared, linear.TakeShared}[p.rand.IntN(3)]
	} else {
		op.Do = []linear.Verb{linear.Renew, linear.Leave, linear.Release}[p.rand.IntN(3)]
	}
	return op
}

func (p *contender) do(ctx context.Context, op *linear.Operation) error {
	resource, _ := strconv.Atoi(op.Resource) // it is a number
	held := p.leases[resource]
	switch op.Do {
	case linear.TakeExclusive, linear.TakeShared:
		res := lockcore.Exclusive(op.Resource)
		if op.Do == linear.TakeShared {
			res = lockcore.Shared(op.Resource)
		}
		leases, err := p.TryEnter(ctx, request(fmt.Sprint(p.client), res))
		if errors.Is(err, lockcore.ErrBusy) {
			return nil
		}
		if err != nil {
			return err
		}
		p.leases[resource] = &leases[0]
		op.OK, op.Fence = true, leases[0].Fence
		return nil
	case linear.Renew:
		leases, err := p.Renew(ctx, *held)
		if errors.Is(err, lockcore.ErrLost) {
			p.leases[resource] = nil
			return nil
		}
		if err != nil {
			return err
		}
		op.OK, op.Fence = true, leases[0].Fence
		return nil
	case linear.Leave:
		p.leases[resource] = nil
		return p.Leave(ctx, *held)
	default:
		p.leases[resource] = nil
		return p.Release(ctx, lockcore.Release{
			LockID: held.LockID, Resources: []string{op.Resource}, FirstFence: held.FirstFence, Order: held.Order, Leaving: &held.Part,
		})
	}
}
