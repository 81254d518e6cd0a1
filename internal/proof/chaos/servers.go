package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/stack"
)

// servers are the database and Temporal of a run, which it can kill and start again.
type servers struct {
	database, temporal string // host and port
	own                *stack.Stack

	mu sync.Mutex // one restart at a time: Up would start what another restart keeps down
}

// openServers starts a stack in LOCKSTEP_STACK_DIR, or else in a folder of its own. It never uses the servers that the environment names.
func openServers(ctx context.Context) (*servers, error) {
	cfg, err := stack.ConfigFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	cfg.MongoURI, cfg.TemporalAddress = "", ""
	if os.Getenv("LOCKSTEP_STACK_DIR") == "" {
		cfg.Dir = filepath.Join(filepath.Dir(cfg.Dir), "chaos-stack") // never the developer's own servers
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "logs"), 0o755); err != nil { //nolint:gosec // the database runs as another user
		return nil, err
	}
	progress, err := os.OpenFile(filepath.Join(cfg.Dir, "logs", "chaos.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s := &servers{own: stack.New(cfg, log.New(progress, "", log.LstdFlags))}
	if err := s.own.Up(ctx); err != nil {
		return nil, err
	}
	record, err := s.own.Record()
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	uri, err := url.Parse(record.Mongo.Address)
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	s.database, s.temporal = uri.Host, record.Temporal.Address
	return s, nil
}

// close ends the servers.
func (s *servers) close(ctx context.Context) error { return s.own.Down(context.WithoutCancel(ctx)) }

// can reports whether a kind of fault is possible with these servers. A server in a container cannot be killed.
func (s *servers) can(kind Kind) bool {
	if kind != DatabaseRestart && kind != TemporalRestart {
		return true
	}
	return len(s.parts(&Fault{Kind: kind, Twice: true})) > 0
}

// parts returns the processes that a restart kills, if they run here.
func (s *servers) parts(f *Fault) (names []string) {
	record, err := s.own.Record()
	if err != nil {
		return nil
	}
	for _, p := range record.Parts {
		switch {
		case p.Container != "" || f.Kind == TemporalRestart != (p.Name == "temporal"):
		case p.Name == "postgres" && !f.Twice: // only the server that translates
		default:
			names = append(names, p.Name)
		}
	}
	return names
}

// restart kills the processes of a server, and starts them again on the same ports. It returns what was seen. With loses, the
// database has forgotten its latest acknowledged writes then.
func (s *servers) restart(ctx context.Context, f *Fault, loses *mongo.Collection) (seen string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.own.Record()
	if err != nil {
		return "", err
	}
	var old []bson.Raw
	if loses != nil {
		if old, err = documents(ctx, loses); err != nil {
			return "", err
		}
		harness.Pause(ctx, forgets)
	}
	names := s.parts(f)
	if err := s.own.Kill(ctx, names...); err != nil {
		return "", err
	}
	address := s.database
	if f.Kind == TemporalRestart {
		address = s.temporal
	}
	refused := refuses(address)
	harness.Pause(ctx, f.For)
	began := time.Now()
	if err := s.own.Up(ctx); err != nil {
		return "", err
	}
	if loses != nil {
		if err := restore(ctx, loses, old); err != nil {
			return "", err
		}
	}
	up := time.Since(began)
	after, err := s.own.Record()
	if err != nil {
		return "", err
	}
	if after.Temporal.Address != before.Temporal.Address || after.Mongo.Address != before.Mongo.Address {
		return "", errors.New("the servers have other addresses after a restart")
	}
	if !refused {
		return "", nil // it was not seen to act
	}
	return fmt.Sprintf("%s refused connections and has other process IDs; it took %.1f s to start", strings.Join(names, " and "), up.Seconds()), nil
}

// refuses reports whether nothing accepts connections at an address.
func refuses(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second) //nolint:noctx // it has a bound
	if err != nil {
		return true
	}
	_ = c.Close()
	return false
}

// forgets is the time of the latest writes that a database which is not durable loses.
const forgets = 1500 * time.Millisecond

// documents returns all documents of a collection.
func documents(ctx context.Context, c *mongo.Collection) (all []bson.Raw, err error) {
	cursor, err := c.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	return all, cursor.All(ctx, &all)
}

// restore gives a collection its earlier documents.
func restore(ctx context.Context, c *mongo.Collection, old []bson.Raw) error {
	ids := bson.A{}
	for _, d := range old {
		id := bson.D{{Key: "_id", Value: d.Lookup("_id")}}
		if _, err := c.ReplaceOne(ctx, id, d, options.Replace().SetUpsert(true)); err != nil {
			return err
		}
		ids = append(ids, d.Lookup("_id"))
	}
	_, err := c.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$nin", Value: ids}}}})
	return err
}
