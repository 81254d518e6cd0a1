package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresInstance takes session-level advisory locks, as PostgreSQL's documentation describes them (13.3.5): each holder and each
// waiter keeps a connection. A lock lives in memory, and ends with its connection. There is no TTL and no fence.
type postgresInstance struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, e env) (instance, error) {
	cfg, err := pgxpool.ParseConfig(e.Postgres)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 60
	cfg.ConnConfig.Tracer = postgresCounter{e.sent}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS raw (id text PRIMARY KEY, n bigint); INSERT INTO raw VALUES ('raw', 0), ('data', 0) ON CONFLICT DO NOTHING`)
	return &postgresInstance{pool}, err
}

func (i *postgresInstance) acquire(ctx context.Context, _ int, resource string) (*held, error) {
	conn, err := i.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", resource); err != nil {
		conn.Release()
		return nil, err
	}
	return &held{
		release: func(ctx context.Context) error {
			defer conn.Release()
			ok := false
			err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", resource).Scan(&ok)
			return okOr(ok, err)
		},
		check: func(ctx context.Context) error { return conn.Ping(ctx) },
		write: func(ctx context.Context) error { return increment(ctx, i.pool, "data") },
	}, nil
}

func (i *postgresInstance) write(ctx context.Context) error { return increment(ctx, i.pool, "raw") }

func increment(ctx context.Context, pool *pgxpool.Pool, id string) error {
	_, err := pool.Exec(ctx, "UPDATE raw SET n = n + 1 WHERE id = $1", id)
	return err
}

func (i *postgresInstance) close(context.Context) error {
	i.pool.Close()
	return nil
}

// postgresCounter counts statements.
type postgresCounter struct{ sent *atomic.Int64 }

func (c postgresCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.sent.Add(1)
	return ctx
}

func (c postgresCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
