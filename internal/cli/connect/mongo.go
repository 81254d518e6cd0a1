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

// Mongo connects to a database, for a program with the name app. The URI has the options for TLS and credentials. Errors
// contain no passwords. change changes the client's options before it connects.
func Mongo(ctx context.Context, uri, app string, change ...func(*options.ClientOptions)) (*mongo.Client, error) {
	if before, _, _ := strings.Cut(uri, "?"); strings.Count(before, "@") > 1 {
		// The driver would report the rest of the password as a host.
		return nil, errors.New("the MongoDB URI: in a user name or password, @ is written %40, / %2F, : %3A and % itself %25")
	}
	var alert atomic.Pointer[net.OpError]
	o := options.Client().ApplyURI(uri).SetServerSelectionTimeout(timeout).SetAppName(app).
		SetServerMonitor(&event.ServerMonitor{ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			if remote := (*net.OpError)(nil); errors.As(e.Failure, &remote) && remote.Op == "remote error" {
				alert.Store(remote)
			}
		}})
	for _, apply := range change {
		apply(o)
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("the MongoDB URI: %w", uriError(err, uri))
	}
	c, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("the MongoDB URI of %s: %w", o.Hosts, err)
	}
	if err := c.Ping(ctx, nil); err != nil {
		_ = c.Disconnect(context.WithoutCancel(ctx)) // it never connected
		if remote := alert.Load(); remote != nil && !strings.Contains(err.Error(), remote.Error()) {
			// A server that refuses a client's certificate sends an alert on some connections, and only closes others.
			err = fmt.Errorf("%w: %w", remote, err)
		}
		return nil, fmt.Errorf("no database answers at %s: %w", o.Hosts, err)
	}
	return c, nil
}

// quoted matches quotations of the URI in the driver's errors. The first two alternatives are not secret: the name of an
// option, and a scheme.
var quoted = regexp.MustCompile(`value for "\w*"|must be "mongodb" or "mongodb\+srv"$|"(?:[^"\\]|\\.)*"`)

// uriError removes possible secrets from an error about a URI, and adds the files that the URI names.
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

// fileOption matches the options with files of certificates and keys.
var fileOption = regexp.MustCompile(`(?i)^(tlsCAFile|tlsCertificateKeyFile|tlsCertificateFile|tlsPrivateKeyFile|sslCertificateAuthorityFile|sslClientCertificateKeyFile)$`)

// Database returns the name of the database in a URI, or the empty string.
func Database(uri string) string {
	cs, err := connstring.Parse(uri)
	if err != nil {
		return ""
	}
	return cs.Database
}

// MaxPoolSize returns the option maxPoolSize of a URI, or nil if it is not set.
func MaxPoolSize(uri string) *uint64 {
	return options.Client().ApplyURI(uri).MaxPoolSize
}
