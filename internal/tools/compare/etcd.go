package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// etcdInstance uses a session for each client, as in the example of concurrency.NewMutex: two requests of one session would share the
// lock. The session keeps its lease alive. A write is refused by a transaction that compares with Mutex.IsOwner.
type etcdInstance struct {
	client *clientv3.Client
	ttl    time.Duration

	mu       sync.Mutex
	sessions map[int]*concurrency.Session
}

func openEtcd(_ context.Context, e env) (instance, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{e.Etcd}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), DialOptions: countGRPC(e.sent),
	})
	return &etcdInstance{client: client, ttl: e.TTL, sessions: map[int]*concurrency.Session{}}, err
}

func (i *etcdInstance) acquire(ctx context.Context, client int, resource string) (*held, error) {
	session, err := i.session(client)
	if err != nil {
		return nil, err
	}
	mutex := concurrency.NewMutex(session, "/locks/"+resource)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	owns := func(ctx context.Context, then ...clientv3.Op) error {
		done, err := i.client.Txn(ctx).If(mutex.IsOwner()).Then(then...).Commit()
		if err == nil && !done.Succeeded {
			err = errors.New("the lock is not held")
		}
		return err
	}
	return &held{
		release: mutex.Unlock, lost: session.Done(),
		check: func(ctx context.Context) error { return owns(ctx) },
		write: func(ctx context.Context) error { return owns(ctx, clientv3.OpPut("data", "late")) },
	}, nil
}

func (i *etcdInstance) session(client int) (*concurrency.Session, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.sessions[client]; s != nil {
		return s, nil
	}
	s, err := concurrency.NewSession(i.client, concurrency.WithTTL(int(i.ttl.Seconds())))
	if err == nil {
		i.sessions[client] = s
	}
	return s, err
}

func (i *etcdInstance) write(ctx context.Context) error {
	_, err := i.client.Put(ctx, "raw", "value")
	return err
}

func (i *etcdInstance) close(context.Context) error {
	var errs []error
	for _, s := range i.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, i.client.Close())...)
}

// countGRPC counts calls, and the messages of streams.
func countGRPC(sent *atomic.Int64) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			sent.Add(1)
			return call(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, method, opts...)
			return countedStream{stream, sent}, err
		}),
	}
}

type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s countedStream) SendMsg(m any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}
