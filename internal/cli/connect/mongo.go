package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// Mongo connects to a database, for a program of the name app. TLS and credentials are those of the URI's options. No
// error has a password in it.
func Mongo(ctx context.Context, uri, app string) (*mongo.Client, error) {
	if before, _, _ := strings.Cut(uri, "?"); strings.Count(before, "@") > 1 {
		// The driver would take the rest of a password for a host.
		return nil, errors.New("the MongoDB URI: in a user name or password, @ is written %40, / %2F, : %3A and % itself %25")
	}
	var alert atomic.Pointer[net.OpError]
	o := options.Client().ApplyURI(uri).SetServerSelectionTimeout(timeout).SetAppName(app).
		SetServerMonitor(&event.ServerMonitor{ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			if told := (*net.OpError)(nil); errors.As(e.Failure, &told) && told.Op == "remote error" {
				alert.Store(told)
			}
		}})
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("the MongoDB URI: %w", uriError(err, uri))
	}
	c, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("the MongoDB URI of %s: %w", o.Hosts, err)
	}
	if err := c.Ping(ctx, nil); err != nil {
		_ = c.Disconnect(context.WithoutCancel(ctx)) // it never connected
		if told := alert.Load(); told != nil && !strings.Contains(err.Error(), told.Error()) {
			// A server that refuses a client's certificate says so on some connections, and cuts
			// others without a word.
			err = fmt.Errorf("%w: %w", told, err)
		}
		return nil, fmt.Errorf("no database answers at %s: %w", o.Hosts, err)
	}
	return c, nil
}

// quoted is what the driver's errors repeat of a URI, and first what of it may be repeated: the name of an option, a
// scheme.
var quoted = regexp.MustCompile(`value for "\w*"|must be "mongodb" or "mongodb\+srv"$|"(?:[^"\\]|\\.)*"`)

// uriError is what is wrong with a URI, without what may be secret in it, and with the files that it names.
func uriError(err error, uri string) error {
	text := quoted.ReplaceAllStringFunc(err.Error(), func(match string) string {
		if strings.HasPrefix(match, `"`) {
			return "…"
		}
		return match
	})
	if text != err.Error() {
		err = errors.New(text)
	}
	_, query, _ := strings.Cut(uri, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if option, file, _ := strings.Cut(pair, "="); fileOption.MatchString(option) {
			err = fmt.Errorf("%w: %s is %q", err, option, file)
		}
	}
	return err
}

// fileOption are the options that name files of certificates and keys.
var fileOption = regexp.MustCompile(`(?i)^(tlsCAFile|tlsCertificateKeyFile|tlsCertificateFile|tlsPrivateKeyFile|sslCertificateAuthorityFile|sslClientCertificateKeyFile)$`)

// Database is the name of the database in a URI's path, or empty if it has none.
func Database(uri string) string {
	cs, err := connstring.Parse(uri)
	if err != nil {
		return ""
	}
	return cs.Database
}
