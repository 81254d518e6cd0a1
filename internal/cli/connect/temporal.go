package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

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

	flags   TemporalFlags
	profile *profile
	secrets []string
	// namespaceFrom names the flag, variable or file with the namespace. It is empty for Temporal's default.
	namespaceFrom string
}

// FindFrontend finds the settings: in the flags, then in the environment, then in the configuration file. Empty variables
// count as not set. It reads the certificates, but does not connect. The error is a SettingError if a setting is wrong.
func FindFrontend(flags TemporalFlags) (*Frontend, error) {
	p, err := readProfile()
	if err != nil {
		return nil, err
	}
	f := &Frontend{flags: flags, profile: p, secrets: []string{p.APIKey}}
	for _, value := range p.GRPCMeta {
		f.secrets = append(f.secrets, value)
	}
	switch {
	case flags.Address != "":
		f.AddressFrom = "--temporal-address"
	case p.Address != "":
		f.AddressFrom = p.from(addressSetting)
	}
	switch {
	case flags.Namespace != "":
		f.namespaceFrom = "--namespace"
	case p.Namespace != "":
		f.namespaceFrom = p.from(nameSetting)
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
		return nil, f.explain(ctx, err)
	}
	_, err = c.WorkflowService().DescribeNamespace(limited, &workflowservice.DescribeNamespaceRequest{Namespace: f.Options.Namespace})
	var unimplemented *serviceerror.Unimplemented
	if err != nil && !errors.As(err, &unimplemented) { // a gateway may allow only the calls that are needed
		c.Close()
		return nil, f.explain(ctx, err)
	}
	return c, nil
}

// Conditions of a FrontendError.
var (
	ErrNoAnswer          = errors.New("no Temporal server answers")
	ErrWantsTLS          = errors.New("the server speaks TLS, and was asked without")
	ErrNoTLS             = errors.New("the server was asked with TLS, and does not speak it")
	ErrUntrusted         = errors.New("the server's certificate is not trusted")
	ErrClientCertificate = errors.New("the server does not accept the client's certificate, or that there is none")
	ErrCredentials       = errors.New("the server does not accept the credentials")
	ErrNamespace         = errors.New("the server does not know the namespace")
)

// FrontendError explains why Temporal cannot be used. It matches one of the conditions, and the original error.
type FrontendError struct {
	Address   string
	From      string // the flag, variable or file with the address; empty for the default
	Condition error
	Detail    string // the error without secrets; empty if the condition is enough
	Remedy    string // empty if it is obvious
	Err       error
}

func (e *FrontendError) Error() string {
	text := fmt.Sprintf("%v at %s", e.Condition, e.Address)
	if e.From != "" {
		text += " (" + e.From + ")"
	}
	for _, more := range []string{e.Detail, e.Remedy} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// Unwrap returns the condition and the original error.
func (e *FrontendError) Unwrap() []error { return []error{e.Condition, e.Err} }

const (
	handshakeTimeout = 2 * time.Second
	// refusalTimeout bounds the wait for a refusal after the handshake.
	refusalTimeout = time.Second
)

// explain makes a FrontendError of a failed connection. If the server did not answer, it tries a TLS handshake to find out
// whether TLS is the reason.
func (f *Frontend) explain(ctx context.Context, err error) error {
	e := &FrontendError{Address: f.Options.HostPort, From: f.AddressFrom, Condition: ErrNoAnswer, Detail: strings.TrimSuffix(err.Error(), "."), Err: err}
	var denied *serviceerror.PermissionDenied
	var namespace *serviceerror.NamespaceNotFound
	switch {
	case errors.As(err, &denied) || status.Code(err) == codes.Unauthenticated:
		e.Condition = ErrCredentials
		e.Remedy = fmt.Sprintf("see whether TEMPORAL_API_KEY, or the client's certificate, is for namespace %q", f.Options.Namespace)
	case errors.As(err, &namespace):
		e.Condition = ErrNamespace
		e.Remedy = f.namespaceRemedy() + "; in Temporal Cloud, names have the form NAME.ACCOUNT"
	case f.Options.ConnectionOptions.TLS == nil:
		f.explainPlain(ctx, e)
	default:
		f.explainTLS(e, try(ctx, e.Address, f.Options.ConnectionOptions.TLS))
	}
	for _, secret := range f.secrets {
		if len(secret) >= minSecret {
			e.Detail = strings.ReplaceAll(e.Detail, secret, "…")
		}
	}
	return e
}

// namespaceRemedy returns how to set another namespace than one that is wrong.
func (f *Frontend) namespaceRemedy() string {
	if f.namespaceFrom != "" {
		return "correct " + f.namespaceFrom
	}
	return "name another than the default with --namespace or TEMPORAL_NAMESPACE"
}

// minSecret is the length from which on the values of headers are removed from the server's messages. Shorter ones are not
// secrets, and occur within words.
const minSecret = 4

// explainPlain sets the condition if a server that was asked without TLS speaks it. Refusing the handshake also counts.
func (f *Frontend) explainPlain(ctx context.Context, e *FrontendError) {
	seen := try(ctx, e.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent
	if !seen.done && !seen.alert() {
		return
	}
	e.Condition, e.Detail, e.Remedy = ErrWantsTLS, "", "set TEMPORAL_TLS=true"
	if f.flags.TLS != nil {
		e.Remedy = "leave out --tls=false"
	}
}

// explainTLS sets the condition by the result of a handshake.
func (f *Frontend) explainTLS(e *FrontendError, seen handshake) {
	var header tls.RecordHeaderError
	var untrusted *tls.CertificateVerificationError
	var name x509.HostnameError
	switch {
	case errors.As(seen.err, &header):
		e.Condition, e.Detail = ErrNoTLS, ""
		e.Remedy = "correct the address, or set TEMPORAL_TLS=false, with which others can read all that is sent, also an API key"
		if f.flags.TLS != nil {
			e.Remedy = "correct the address, or leave out --tls"
		}
	case errors.As(seen.err, &untrusted):
		e.Condition, e.Detail = ErrUntrusted, untrusted.Err.Error()
		e.Remedy = "TEMPORAL_TLS_SERVER_CA_CERT_PATH names the certificate of its authority"
		if errors.As(seen.err, &name) {
			e.Remedy = "TEMPORAL_TLS_SERVER_NAME sets the name that it is for"
		}
	case seen.asked && seen.alert():
		e.Condition, e.Detail = ErrClientCertificate, seen.err.Error()
		e.Remedy = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name a certificate and its key"
	default:
		return
	}
	e.Err = errors.Join(e.Err, seen.err)
}

// handshake is the result of a handshake.
type handshake struct {
	done  bool
	asked bool  // the server asked for the client's certificate
	err   error // of the handshake, or after it
}

// alert reports whether the server sent a TLS alert.
func (h *handshake) alert() bool {
	var remote *net.OpError
	return errors.As(h.err, &remote) && remote.Op == "remote error"
}

// try makes a handshake as a gRPC client does, and waits for the server's verdict on the client's certificate, which with
// TLS 1.3 comes after the handshake. It sends no data.
func try(ctx context.Context, address string, conf *tls.Config) (seen handshake) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conf = conf.Clone()
	conf.NextProtos = []string{"h2"}
	present := conf.GetClientCertificate
	conf.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		seen.asked = true
		if present == nil {
			return &tls.Certificate{}, nil // no certificate
		}
		return present(r)
	}
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", target(address))
	if err != nil {
		seen.err = err
		return seen
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	seen.done = true
	if seen.err = conn.SetReadDeadline(time.Now().Add(refusalTimeout)); seen.err != nil {
		return seen
	}
	_, seen.err = conn.Read(make([]byte, 1))
	return seen
}

// target returns the host and port of a gRPC address, which may have the name of a resolver, and may lack the port.
func target(address string) string {
	address = address[strings.LastIndex(address, "/")+1:] // dns:///host:port
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(address, "443")
	}
	return address
}
