package stack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/stack/replicaset"
)

func (s *Stack) mongoChoices() []choice {
	return []choice{
		given("LOCKSTEP_MONGODB_URI", s.cfg.MongoURI, func() bool { return isOwn(s.state.Mongo, s.cfg.MongoURI) },
			s.givenMongo, "set LOCKSTEP_MONGODB_URI to a MongoDB that answers"),
		{
			kind:     "docker",
			possible: s.dockerPossible,
			start:    s.dockerMongo,
			remedy:   "start a Docker engine that has or can pull the image " + s.cfg.MongoImage + " (another one: LOCKSTEP_MONGO_IMAGE)",
		},
		{
			kind:     "mongod",
			possible: onPath("mongod"),
			start:    s.pathMongo,
			remedy:   "put mongod on the PATH",
		},
		{
			kind:     "documentdb",
			possible: func(ctx context.Context) (string, error) { return documentDBPossible(machine(ctx)) },
			start:    s.documentDB,
			remedy:   "run on Debian as root (FerretDB on PostgreSQL with DocumentDB is then built and started)",
		},
	}
}

func (s *Stack) givenMongo(ctx context.Context) (Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if err := mongoHealthy(ctx, s.cfg.MongoURI); err != nil {
		return Endpoint{}, fmt.Errorf("LOCKSTEP_MONGODB_URI=%s does not answer: %w; correct it, or unset it to have a database started",
			redact(s.cfg.MongoURI), err)
	}
	return Endpoint{Address: s.cfg.MongoURI}, nil
}

func (s *Stack) pathMongo(ctx context.Context) (Endpoint, error) {
	program, err := exec.LookPath("mongod")
	if err != nil {
		return Endpoint{}, err
	}
	p, _, err := s.ensure(ctx, s.mongodService(program))
	if err != nil {
		return Endpoint{}, err
	}
	return initiate(ctx, p.Ports["mongo"])
}

func (s *Stack) mongodService(program string) service {
	return service{
		name:  "mongod",
		ports: []string{"mongo"},
		argv: func(ports map[string]int) []string {
			return []string{
				program,
				"--replSet", replicaset.Name,
				"--bind_ip", loopback,
				"--port", strconv.Itoa(ports["mongo"]),
				"--dbpath", filepath.Join(s.cfg.Dir, "data", "mongod"),
			}
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			return mongoHealthy(ctx, directURI(ports["mongo"]))
		},
		within: time.Minute,
	}
}

// initiate returns the address of the server on the port, as a replica set if it can be one.
func initiate(ctx context.Context, port int) (Endpoint, error) {
	var known bool
	err := withMongo(ctx, directURI(port), func(admin *mongo.Database) (err error) {
		known, err = replicaset.Initiate(ctx, admin, hostPort(port))
		return err
	})
	if err != nil {
		return Endpoint{}, err
	}
	uri := "mongodb://" + hostPort(port) + "/"
	if known {
		uri += "?replicaSet=" + replicaset.Name
	}
	return Endpoint{Address: uri}, nil
}

func directURI(port int) string { return "mongodb://" + hostPort(port) + "/?directConnection=true" }

// mongoHealthy asks for an answer from whichever member would be asked to write.
func mongoHealthy(ctx context.Context, uri string) error {
	return withMongo(ctx, uri, func(db *mongo.Database) error {
		return db.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
	})
}

// withMongo connects to the admin database for one question.
func withMongo(ctx context.Context, uri string, ask func(admin *mongo.Database) error) error {
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer c.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	return ask(c.Database("admin"))
}
