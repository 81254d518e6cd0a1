package delay

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// message returns a message of the wire protocol with one document.
func message(t *testing.T, id, responseTo, flags uint32, document bson.D) []byte {
	t.Helper()
	body, err := bson.Marshal(document)
	require.NoError(t, err)
	m := binary.LittleEndian.AppendUint32(nil, uint32(headerSize+4+1+len(body)))
	for _, field := range []uint32{id, responseTo, opMsg, flags} {
		m = binary.LittleEndian.AppendUint32(m, field)
	}
	return append(append(m, 0), body...)
}

// answer sends a request through c, answers it n times, and returns how long after the first each answer was read.
func answer(t *testing.T, c net.Conn, server net.Conn, command string, n int) (took []time.Duration) {
	t.Helper()
	request := message(t, 7, 0, 0, bson.D{{Key: command, Value: "locks"}})
	response := message(t, 8, 7, 0, bson.D{{Key: "ok", Value: 1}})
	go func() {
		_, _ = io.ReadFull(server, make([]byte, len(request)))
		for range n {
			_, _ = server.Write(response)
		}
	}()
	start := time.Now()
	_, err := c.Write(request)
	require.NoError(t, err)
	for range n {
		// The driver reads the size first.
		got := make([]byte, len(response))
		_, err = io.ReadFull(c, got[:4])
		require.NoError(t, err)
		_, err = io.ReadFull(c, got[4:])
		require.NoError(t, err)
		require.Equal(t, response, got)
		took = append(took, time.Since(start))
	}
	return took
}

func TestDelayedConn_Answer_IsHeldBackByCommand(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		delays  Delays
		command string
		want    []time.Duration
	}{
		{"a write", Delays{Writes: 12 * ms}, "update", []time.Duration{12 * ms}},
		{"another write", Delays{Writes: 12 * ms}, "findAndModify", []time.Duration{12 * ms}},
		{"a read", Delays{Writes: 12 * ms}, "find", []time.Duration{0}},
		{"a delayed read", Delays{Writes: 12 * ms, Reads: 3 * ms}, "aggregate", []time.Duration{3 * ms}},
		{"hello", Delays{Writes: 12 * ms, Reads: 3 * ms}, "hello", []time.Duration{0}},
		{"a write to the slow Locker", Delays{All: 50 * ms, Writes: 12 * ms}, "insert", []time.Duration{62 * ms}},
		{"a streaming hello to the slow Locker", Delays{All: 50 * ms}, "hello", []time.Duration{50 * ms, 100 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				conn := newDelayedConn(client, c.delays)
				require.Equal(t, c.want, answer(t, conn, server, c.command, len(c.want)))
				require.NoError(t, conn.Close())
			})
		})
	}
}

func TestDelayedConn_Deadline_EndsReadAndLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn := newDelayedConn(client, Delays{Writes: 12 * time.Millisecond})
		request := message(t, 7, 0, 0, bson.D{{Key: "update", Value: "locks"}})
		response := message(t, 8, 7, 0, bson.D{{Key: "ok", Value: 1}})
		go func() {
			_, _ = io.ReadFull(server, make([]byte, len(request)))
			_, _ = server.Write(response)
		}()
		_, err := conn.Write(request)
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, conn.SetReadDeadline(start.Add(5*time.Millisecond)))
		_, err = conn.Read(make([]byte, 4))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 5*time.Millisecond, time.Since(start))
		require.NoError(t, conn.SetReadDeadline(time.Time{}))
		got := make([]byte, len(response))
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, response, got)
		require.Equal(t, 12*time.Millisecond, time.Since(start))
		require.NoError(t, conn.Close())
	})
}

func TestDelayedConn_Close_EndsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn := newDelayedConn(client, Delays{All: time.Hour})
		ended := make(chan error)
		go func() {
			_, err := conn.Read(make([]byte, 4))
			ended <- err
		}()
		_, err := server.Write(message(t, 8, 7, 0, bson.D{})[:headerSize])
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, conn.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
	})
}

func TestCommandOf_UnansweredRequest_HasNoName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "update", commandOf(message(t, 1, 0, 0, bson.D{{Key: "update", Value: "locks"}})))
	require.Empty(t, commandOf(message(t, 1, 0, moreToCome, bson.D{{Key: "update", Value: "locks"}})))
}
