package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// TemporalFlags are the values of a command's flags.
type TemporalFlags struct {
	// Address and Namespace are empty if they were not given.
	Address, Namespace string
	// TLS is nil if it was not given.
	TLS *bool
}

// Frontend has the settings of a connection to Temporal.
type Frontend struct {
	// Options are those of a client; add a logger and interceptors.
	Options client.Options
	// AddressFrom names the flag, variable or file with the address. It is empty for Temporal's default.
	AddressFrom string

	profile *profile
	secrets []string
}

// FindFrontend finds the settings: in the flags, then in the environment, then in the configuration file. Empty variables
// count as not set. It reads the certificates, but does not connect. The error is a SettingError if a setting is wrong.
func FindFrontend(flags TemporalFlags) (*Frontend, error) {
	p, err := readProfile()
	if err != nil {
		return nil, err
	}
	f := &Frontend{profile: p, secrets: []string{p.APIKey}}
	for _, value := range p.GRPCMeta {
		f.secrets = append(f.secrets, value)
	}
	switch {
	case flags.Address != "":
		f.AddressFrom = "--temporal-address"
	case p.Address != "":
		f.AddressFrom = p.from(addressSetting)
	}
	p.Address = cmp.Or(flags.Address, p.Address, client.DefaultHostPort)
	p.Namespace = cmp.Or(flags.Namespace, p.Namespace, client.DefaultNamespace)
	if strings.HasPrefix(p.Address, "http://") || strings.HasPrefix(p.Address, "https://") {
		return nil, &SettingError{Setting: f.AddressFrom, Value: withoutPassword(p.Address), Want: "want host:port, without a scheme"}
	}
	if flags.TLS != nil {
		if p.TLS == nil {
			p.TLS = &envconfig.ClientConfigTLS{}
		}
		p.TLS.Disabled = !*flags.TLS
	}
	f.Options, err = p.options()
	return f, err
}

// Dial connects, and describes the namespace to check the credentials, which a connection alone does not. The error is a
// FrontendError, and comes after a few seconds at most.
func (f *Frontend) Dial(ctx context.Context) (client.Client, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.DialContext(limited, f.Options)
	var invalid *lockcore.InvalidError
	if errors.As(err, &invalid) { // a plugin refuses the options
		return nil, invalid
	}
	if err != nil {
		return nil, f.explain(err)
	}
	_, err = c.WorkflowService().DescribeNamespace(limited, &workflowservice.DescribeNamespaceRequest{Namespace: f.Options.Namespace})
	var unimplemented *serviceerror.Unimplemented
	if err != nil && !errors.As(err, &unimplemented) { // a gateway may allow only the calls that are needed
		c.Close()
		return nil, f.explain(err)
	}
	return c, nil
}

// Conditions of a FrontendError.
var (
	ErrNoAnswer    = errors.New("no Temporal server answers")
	ErrCredentials = errors.New("the server does not accept the credentials")
	ErrNamespace   = errors.New("the server does not know the namespace")
)

// FrontendError explains why Temporal cannot be used. It matches one of the conditions, and the original error.
type FrontendError struct {
	text           string
	condition, err error
}

func (e *FrontendError) Error() string { return e.text }

// Unwrap returns the condition and the original error.
func (e *FrontendError) Unwrap() []error { return []error{e.condition, e.err} }

// secretLength is the length from which on the values of headers are removed from the server's messages. Shorter ones are not
// secrets, and occur within words.
const secretLength = 4

// aboutTLS matches the errors of a handshake.
var aboutTLS = regexp.MustCompile("tls:|x509:")

// explain makes a FrontendError of a failed connection. Its text has the address, where that was set, and a remedy.
func (f *Frontend) explain(err error) error {
	condition, detail, remedy := ErrNoAnswer, strings.TrimSuffix(err.Error(), "."), ""
	var denied *serviceerror.PermissionDenied
	var namespace *serviceerror.NamespaceNotFound
	switch {
	case errors.As(err, &denied) || status.Code(err) == codes.Unauthenticated:
		condition = ErrCredentials
		remedy = fmt.Sprintf(": see whether TEMPORAL_API_KEY, or the client's certificate, is for namespace %q", f.Options.Namespace)
	case errors.As(err, &namespace):
		condition = ErrNamespace
		remedy = ": set TEMPORAL_NAMESPACE; in Temporal Cloud, names have the form NAME.ACCOUNT"
	case aboutTLS.MatchString(detail):
		remedy = ": TEMPORAL_TLS=false switches TLS off; TEMPORAL_TLS_SERVER_CA_CERT_PATH, TEMPORAL_TLS_SERVER_NAME and TEMPORAL_TLS_CLIENT_CERT_PATH configure it"
	case f.Options.ConnectionOptions.TLS == nil && strings.Contains(detail, context.DeadlineExceeded.Error()):
		remedy = ": if it speaks TLS, set TEMPORAL_TLS=true"
	}
	for _, secret := range f.secrets {
		if len(secret) >= secretLength {
			detail = strings.ReplaceAll(detail, secret, "…")
		}
	}
	at := f.Options.HostPort
	if f.AddressFrom != "" {
		at += " (" + f.AddressFrom + ")"
	}
	return &FrontendError{fmt.Sprintf("%v at %s: %s%s", condition, at, detail, remedy), condition, err}
}
