package mongoengine_test

import (
	"context"
	"encoding/binary"
	"net"
	"reflect"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// rewrite changes part of a pipeline, and tells whether it did. It is asked for every value in it, the outer ones
// first; what it has changed it is not asked for again.
type rewrite func(key string, value any) (any, bool)

// instead puts one expression in the place of another.
func instead(of, to any) rewrite {
	of, to = sent(of), sent(to)
	return func(_ string, value any) (any, bool) {
		if reflect.DeepEqual(value, of) {
			return to, true
		}
		return nil, false
	}
}

// field puts an expression in the place of what a stage sets a field to.
func field(name string, to any) rewrite {
	to = sent(to)
	return func(key string, _ any) (any, bool) { return to, key == name }
}

// operator changes what an operator of the aggregation language is used for.
func operator(name string, change func(arg any) (any, bool)) rewrite {
	return func(_ string, value any) (any, bool) {
		if d, ok := value.(bson.D); ok && len(d) == 1 && d[0].Key == name {
			return change(d[0].Value)
		}
		return nil, false
	}
}

// either is two rewrites.
func either(rewrites ...rewrite) rewrite {
	return func(key string, value any) (any, bool) {
		for _, r := range rewrites {
			if to, yes := r(key, value); yes {
				return to, true
			}
		}
		return nil, false
	}
}

// sent is an expression as it arrives at a server.
func sent(v any) any {
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: v}})
	if err != nil {
		panic(err)
	}
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		panic(err)
	}
	return d[0].Value
}

// tamperer dials connections on which the pipelines of updates are rewritten on their way to the server. So what is
// mutated is what production sends, and production has no hook for it.
type tamperer struct {
	net.Dialer
	rewrite rewrite
	changed atomic.Int64
}

func (t *tamperer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := t.Dialer.DialContext(ctx, network, address)
	return &tamperedConn{c, t}, err
}

type tamperedConn struct {
	net.Conn
	t *tamperer
}

func (c *tamperedConn) Write(message []byte) (int, error) {
	if _, err := c.Conn.Write(c.t.message(message)); err != nil {
		return 0, err
	}
	return len(message), nil
}

// message rewrites an OP_MSG: a header, flags, and sections that are a document, or a name with documents.
func (t *tamperer) message(m []byte) []byte {
	const header, opMsg = 16, 2013
	if len(m) < header+4 || binary.LittleEndian.Uint32(m[12:]) != opMsg {
		return m
	}
	out := append([]byte{}, m[:header+4]...)
	for rest := m[header+4:]; len(rest) > 0; {
		kind := rest[0]
		size := int(binary.LittleEndian.Uint32(rest[1:]))
		section := rest[1 : 1+size]
		rest = rest[1+size:]
		out = append(out, kind)
		if kind == 0 {
			out = append(out, t.document(section)...)
			continue
		}
		end := 4
		for section[end] != 0 {
			end++
		}
		body := append([]byte{}, section[:end+1]...)
		for docs := section[end+1:]; len(docs) > 0; {
			n := int(binary.LittleEndian.Uint32(docs))
			body = append(body, t.document(docs[:n])...)
			docs = docs[n:]
		}
		binary.LittleEndian.PutUint32(body, uint32(len(body)))
		out = append(out, body...)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out
}

// document rewrites the condition and the pipeline of a findAndModify, or the pipeline of one of the statements of an update.
func (t *tamperer) document(raw []byte) []byte {
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		panic(err)
	}
	for i, e := range d {
		if e.Key == "update" || e.Key == "u" || (e.Key == "query" && d[0].Key == "findAndModify") {
			d[i].Value = t.value(e.Key, e.Value)
		}
	}
	out, err := bson.Marshal(d)
	if err != nil {
		panic(err)
	}
	return out
}

func (t *tamperer) value(key string, v any) any {
	if to, yes := t.rewrite(key, v); yes {
		t.changed.Add(1)
		return to
	}
	switch v := v.(type) {
	case bson.D:
		for i := range v {
			v[i].Value = t.value(v[i].Key, v[i].Value)
		}
	case bson.A:
		for i := range v {
			v[i] = t.value("", v[i])
		}
	}
	return v
}
