package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// servers are the database and Temporal of a run. Servers of the program's own stack can be restarted; given ones cannot.
type servers struct {
	database, temporal string // host and port
	// own is nil if the environment names the servers.
	own *stack.Stack

	mu sync.Mutex // one restart at a time: Up would start what another restart keeps down
}

// openServers uses the servers that the environment names, or starts a stack in LOCKSTEP_STACK_DIR, or else in a folder of its own.
func openServers(ctx context.Context) (*servers, error) {
	uri, temporal := os.Getenv("LOCKSTEP_MONGODB_URI"), os.Getenv("TEMPORAL_ADDRESS")
	if uri != "" && temporal != "" {
		host, err := primaryOf(ctx, uri)
		return &servers{database: host, temporal: temporal}, err
	}
	if uri != "" || temporal != "" {
		return nil, errors.New("set both LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS, or none to start servers that can be restarted")
	}
	cfg, err := stack.ConfigFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
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
	s := &servers{own: stack.New(cfg, log.New(io.MultiWriter(progress), "", log.LstdFlags))}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	record, err := s.own.Record()
	if err == nil {
		s.temporal = record.Temporal.Address
		s.database, err = hostOf(record.Mongo.Address)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// start starts the program's own servers, if they do not run.
func (s *servers) start(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	return s.own.Up(ctx)
}

func hostOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" {
		return "", errUnusable
	}
	return primaryAmong("", []string{u.Host}), nil
}

// primaryOf returns the address of the server to which proxies lead: the primary of a replica set, or the first server of the URI.
// If another member becomes primary, the run no longer finds the database, and fails without a violation.
func primaryOf(ctx context.Context, uri string) (address string, err error) {
	o := options.Client().ApplyURI(uri)
	if err := o.Validate(); err != nil || o.Auth != nil || len(o.Hosts) == 0 {
		return "", errUnusable // the driver's error may contain a secret
	}
	mc, err := mongo.Connect(o.SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		return "", err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // it has answered
	var hello struct{ Primary string }
	if err := mc.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return "", fmt.Errorf("find the primary of %s: %w", strings.Join(o.Hosts, ","), err)
	}
	return primaryAmong(hello.Primary, o.Hosts), nil
}

// primaryAmong returns the address of a primary, if the server names one, or else of the first host.
func primaryAmong(primary string, hosts []string) string {
	address := cmp.Or(primary, hosts[0])
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(strings.Trim(address, "[]"), "27017")
	}
	return address
}

var errUnusable = errors.New("LOCKSTEP_MONGODB_URI must be the URI of a server or a replica set, without credentials")

// close ends the servers that the program has started.
func (s *servers) close(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	return s.own.Down(context.WithoutCancel(ctx))
}

// can reports whether a kind of fault is possible with these servers.
func (s *servers) can(kind Kind) bool {
	if kind != DatabaseRestart && kind != TemporalRestart {
		return true
	}
	return s.own != nil && len(s.parts(&Fault{Kind: kind, Twice: true})) > 0
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
