package mongolock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// cutter makes connections that lose the answers to the next writes.
type cutter struct {
	net.Dialer
	// lose counts the answers that are lost: to writes, and if reads is set also to reads.
	lose  atomic.Int32
	reads atomic.Bool
}

func (d *cutter) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	return &cutConn{Conn: conn, by: d}, err
}

type cutConn struct {
	net.Conn
	by  *cutter
	cut atomic.Bool
}

var errCut = errors.New("connection cut")

func (c *cutConn) Write(p []byte) (int, error) {
	writes := bytes.Contains(p, []byte("\x02update\x00")) || bytes.Contains(p, []byte("\x02insert\x00"))
	reads := c.by.reads.Load() && bytes.Contains(p, []byte("\x02find\x00"))
	if (writes || reads) && c.by.lose.Add(-1) >= 0 {
		c.cut.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut.Load() {
		return 0, errors.Join(errCut, c.Close())
	}
	return n, err
}

func setupCut(t *testing.T) (fixture, *cutter) {
	t.Helper()
	f, d := setup(t), &cutter{}
	client, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetDialer(d).SetRetryWrites(false))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	f.Client = mongolock.NewClient(client.Database(f.coll.Database().Name()).Collection(f.coll.Name()))
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // without waiting until no copy of a command can come
		_ = f.Close(ended)
	})
	_, err = f.Status(t.Context(), mongolock.Filter{})
	require.NoError(t, err)
	return f, d
}

func TestClient_LostAnswer_IsRepeated(t *testing.T) {
	t.Parallel()
	c, net := setupCut(t)
	net.lose.Store(1)
	require.NoError(t, c.XLock(t.Context(), "r", "a", hour), "it finds that it holds")
	net.lose.Store(1)
	require.ErrorIs(t, c.XLock(t.Context(), "r", "b", hour), mongolock.ErrAlreadyLocked)
	net.lose.Store(1)
	renewed, err := c.Renew(t.Context(), "a", 60)
	require.NoError(t, err)
	require.Len(t, renewed, 1)
	net.lose.Store(1)
	unlocked, err := c.Unlock(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, unlocked, 1)
	require.Empty(t, c.holders(t, "r"))
}

func TestClient_Outage_IsNotALoss(t *testing.T) {
	t.Parallel()
	c, net := setupCut(t)
	require.NoError(t, c.XLock(t.Context(), "r", "a", hour))
	net.reads.Store(true)
	net.lose.Store(1000)
	_, err := c.Renew(t.Context(), "a", 60)
	require.ErrorContains(t, err, errCut.Error())
	require.NotErrorIs(t, err, mongolock.ErrLockNotFound)
	err = c.XLock(t.Context(), "r", "b", hour)
	require.ErrorContains(t, err, errCut.Error())
	require.NotErrorIs(t, err, mongolock.ErrAlreadyLocked)
	_, err = c.Unlock(t.Context(), "a")
	require.ErrorContains(t, err, errCut.Error())
}
