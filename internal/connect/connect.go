// Package connect opens the connections of the command line's processes, and makes sure at once that somebody answers,
// with errors for people: they name the address, and never a password.
package connect

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"go.temporal.io/sdk/client"
)

// timeout is how long a server may take to answer for the first time.
const timeout = 5 * time.Second

// Mongo connects to a database, for a program of the name app.
func Mongo(ctx context.Context, uri, app string) (*mongo.Client, error) {
	c, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(timeout).SetAppName(app))
	if err != nil {
		return nil, fmt.Errorf("the MongoDB URI %q: %w", masked(uri), err)
	}
	if err := c.Ping(ctx, nil); err != nil {
		_ = c.Disconnect(context.WithoutCancel(ctx)) // it never connected
		return nil, fmt.Errorf("no database answers at %s: %w", masked(uri), err)
	}
	return c, nil
}

// masked is a URI without what may be secret in it.
func masked(uri string) string {
	cs, err := connstring.Parse(uri)
	if err != nil {
		return "(not a MongoDB URI)"
	}
	return fmt.Sprint(cs.Hosts)
}

// Database is the name of the database in a URI's path, or empty where it has none.
func Database(uri string) string {
	cs, err := connstring.Parse(uri)
	if err != nil {
		return ""
	}
	return cs.Database
}

// Temporal dials a frontend.
func Temporal(ctx context.Context, o client.Options) (client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("no Temporal server answers at %s: %w", o.HostPort, err)
	}
	return c, nil
}
