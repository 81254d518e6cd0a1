package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// env has the servers and the settings of an instance. It is sent to child processes as JSON.
type env struct {
	Redis, Etcd, Postgres, Mongo, Temporal string
	// Database is MongoDB's database.
	Database string
	// Queue is the task queue of workflows that hold locks, and Mutexes that of mutex workflows.
	Queue, Mutexes string
	// TTL is the time after which the lock of a dead holder ends, if the system has such a time.
	TTL time.Duration
	// sent counts the requests of all instances of a system. It is not nil.
	sent *atomic.Int64
}

// system is a way to lock one resource by name.
type system struct {
	name string
	// servers are the servers that it uses, by the names in servers.go.
	servers []string
	// settle is the time in which 200 requests certainly reach the servers.
	settle time.Duration
	open   func(ctx context.Context, e env) (instance, error)
}

// instance is one process's use of a system.
type instance interface {
	// acquire waits until it holds the resource. The context must have a deadline, because redislock would set one.
	// Requests with the same client number are never concurrent.
	acquire(ctx context.Context, client int, resource string) (*held, error)
	// write performs the raw durable write.
	write(ctx context.Context) error
	close(ctx context.Context) error
}

// held is a lock that an instance holds.
type held struct {
	release func(context.Context) error
	// lost is closed when the system informs the holder that it has lost the lock. It is nil if the system never does.
	lost <-chan struct{}
	// check asks whether the lock is still held. It is nil if that cannot be asked.
	check func(context.Context) error
	// write changes data that the lock protects, with the protection against late writers that the system has, if any. It is nil for
	// a mutex workflow, which has no data: there, the end of the step may come too late.
	write func(context.Context) error
}

// The names of the servers.
const (
	redisServer    = "redis"
	etcdServer     = "etcd"
	postgresServer = "postgres"
	mongoServer    = "mongo"
	temporalServer = "temporal"
)

var systems = []system{
	{name: "Lockstep", servers: []string{mongoServer}, settle: 2 * time.Second, open: openLockstep},
	{name: "mongo-lock calls", servers: []string{mongoServer}, settle: 2 * time.Second, open: openMongoLock},
	{name: "redislock", servers: []string{redisServer}, settle: time.Second, open: openRedislock},
	{name: "redsync", servers: []string{redisServer}, settle: time.Second, open: openRedsync},
	{name: "etcd", servers: []string{etcdServer}, settle: 2 * time.Second, open: openEtcd},
	{name: "PostgreSQL", servers: []string{postgresServer}, settle: 3 * time.Second, open: openPostgres},
	{name: "mutex workflow", servers: []string{temporalServer}, settle: 8 * time.Second, open: openTemporal(kindMutex)},
	{name: "Lockstep guard", servers: []string{temporalServer, mongoServer}, settle: 8 * time.Second, open: openTemporal(kindGuard)},
}

func systemNamed(name string) (system, bool) {
	i := slices.IndexFunc(systems, func(s system) bool { return s.name == name })
	if i < 0 {
		return system{}, false
	}
	return systems[i], true
}
