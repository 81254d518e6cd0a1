package main

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redisClient is the client of both Redis systems.
type redisClient struct{ *redis.Client }

func openRedis(e env) redisClient {
	c := redis.NewClient(&redis.Options{Addr: e.Redis})
	c.AddHook(redisCounter{e.sent})
	return redisClient{c}
}

// write increments a number. With appendfsync always, Redis answers after it has written the log to the disk.
func (c redisClient) write(ctx context.Context) error { return c.Incr(ctx, "raw").Err() }

// lateWrite is unconditional: neither library has fences.
func (c redisClient) lateWrite(ctx context.Context) error { return c.Incr(ctx, "data").Err() }

func (c redisClient) close(context.Context) error { return c.Close() }

// redisCounter counts commands.
type redisCounter struct{ sent *atomic.Int64 }

func (c redisCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c redisCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.sent.Add(1); return next(ctx, cmd) }
}

func (c redisCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next // only the handshake of a connection uses it
}

// redislockInstance waits with a linear back-off of 100 ms, as in the example "retry" of redislock's documentation. A lock is
// renewed by the caller, with Refresh.
type redislockInstance struct {
	redisClient
	locks *redislock.Client
	ttl   time.Duration
}

func openRedislock(_ context.Context, e env) (instance, error) {
	c := openRedis(e)
	return &redislockInstance{redisClient: c, locks: redislock.New(c.Client), ttl: e.TTL}, nil
}

func (i *redislockInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	lock, err := i.locks.Obtain(ctx, "redislock/"+resource, i.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	check := func(ctx context.Context) error { return lock.Refresh(ctx, i.ttl, nil) }
	return &held{release: lock.Release, check: check, write: i.lateWrite}, nil
}

// redsyncInstance waits 50 to 250 ms between attempts, redsync's default, but as often as necessary. It has one Redis server.
// A lock is renewed by the caller, with Extend.
type redsyncInstance struct {
	redisClient
	locks *redsync.Redsync
	ttl   time.Duration
}

func openRedsync(_ context.Context, e env) (instance, error) {
	c := openRedis(e)
	return &redsyncInstance{redisClient: c, locks: redsync.New(goredis.NewPool(c.Client)), ttl: e.TTL}, nil
}

func (i *redsyncInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	mutex := i.locks.NewMutex("redsync/"+resource, redsync.WithExpiry(i.ttl), redsync.WithTries(math.MaxInt))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	held := &held{write: i.lateWrite}
	held.release = func(ctx context.Context) error { return okOr(mutex.UnlockContext(ctx)) }
	held.check = func(ctx context.Context) error { return okOr(mutex.ExtendContext(ctx)) }
	return held, nil
}

// okOr returns an error if an operation was not successful.
func okOr(ok bool, err error) error {
	if !ok && err == nil {
		return errors.New("the lock is not held")
	}
	return err
}
