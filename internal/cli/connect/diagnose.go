package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Conditions in which there is no Temporal to work with: what a FrontendError is.
var (
	ErrNoAnswer          = errors.New("no Temporal server answers")
	ErrWantsTLS          = errors.New("the server speaks TLS, and was asked without")
	ErrNoTLS             = errors.New("the server was asked with TLS, and does not speak it")
	ErrUntrusted         = errors.New("the server's certificate is not trusted")
	ErrClientCertificate = errors.New("the server does not accept the client's certificate, or that there is none")
	ErrCredentials       = errors.New("the server does not accept the credentials")
	ErrNamespace         = errors.New("the server does not know the namespace")
)

// FrontendError is why there is no Temporal to work with. It is one of the conditions, for errors.Is, and unwraps to
// what was seen as well.
type FrontendError struct {
	Address string
	// From names the flag, variable or file that says the address; empty if it is the default.
	From      string
	Condition error
	// Detail is what was seen, without secrets; empty if the condition says it all.
	Detail string
	// Remedy is what to do; empty if that is plain.
	Remedy string
	Err    error
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

// Unwrap returns the condition and what was seen.
func (e *FrontendError) Unwrap() []error { return []error{e.Condition, e.Err} }

// probeWithin bounds the handshake by which a failure is explained, and refusalWithin the wait for what a server says
// after it.
const (
	probeWithin   = 2 * time.Second
	refusalWithin = time.Second
)

// explain tells why Temporal cannot be worked with. If it did not answer, one handshake looks for what TLS has to do
// with it.
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
		e.Remedy = "set TEMPORAL_NAMESPACE; in Temporal Cloud, names have the form NAME.ACCOUNT"
	case f.Options.ConnectionOptions.TLS == nil:
		f.blamePlain(ctx, e)
	default:
		f.blame(e, try(ctx, e.Address, f.Options.ConnectionOptions.TLS))
	}
	for _, secret := range f.secrets {
		if len(secret) >= shortSecret {
			e.Detail = strings.ReplaceAll(e.Detail, secret, "…")
		}
	}
	return e
}

// shortSecret is the length from which on a header's value is taken out of what a server says: shorter ones are no
// secrets, and would leave holes in words.
const shortSecret = 4

// blamePlain looks whether a server that was asked without TLS speaks it, be it by refusing the handshake.
func (f *Frontend) blamePlain(ctx context.Context, e *FrontendError) {
	seen := try(ctx, e.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent
	if !seen.done && !seen.alert() {
		return
	}
	e.Condition, e.Detail, e.Remedy = ErrWantsTLS, "", "set TEMPORAL_TLS=true"
	if f.flags.TLS != nil {
		e.Remedy = "leave out --tls=false"
	}
}

// blame sets a condition by what a handshake has shown.
func (f *Frontend) blame(e *FrontendError, seen handshake) {
	var header tls.RecordHeaderError
	var untrusted *tls.CertificateVerificationError
	var name x509.HostnameError
	switch {
	case errors.As(seen.err, &header):
		e.Condition, e.Detail = ErrNoTLS, ""
		e.Remedy = "correct the address, or set TEMPORAL_TLS=false, with which all that is sent can be read on the way, an API key too"
		if f.flags.TLS != nil {
			e.Remedy = "correct the address, or leave out --tls"
		}
	case errors.As(seen.err, &untrusted):
		e.Condition, e.Detail = ErrUntrusted, untrusted.Err.Error()
		e.Remedy = "TEMPORAL_TLS_SERVER_CA_CERT_PATH names the certificate of who signed it"
		if errors.As(seen.err, &name) {
			e.Remedy = "TEMPORAL_TLS_SERVER_NAME says which name it is for"
		}
	case seen.asked && seen.alert():
		e.Condition, e.Detail = ErrClientCertificate, seen.err.Error()
		e.Remedy = "TEMPORAL_TLS_CLIENT_CERT_PATH and TEMPORAL_TLS_CLIENT_KEY_PATH name a certificate and its key"
	default:
		return
	}
	e.Err = errors.Join(e.Err, seen.err)
}

// handshake is what was seen of one.
type handshake struct {
	done  bool  // it was
	asked bool  // the server asked for the client's certificate
	err   error // what ended it, or came after it
}

// alert reports whether the server has said what it does not like.
func (h *handshake) alert() bool {
	var remote *net.OpError
	return errors.As(h.err, &remote) && remote.Op == "remote error"
}

// try makes a handshake as a client of gRPC does, sends nothing, and waits for what the server says of the client's
// certificate, which with TLS 1.3 comes after the handshake.
func try(ctx context.Context, address string, conf *tls.Config) (seen handshake) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	conf = conf.Clone()
	conf.NextProtos = []string{"h2"}
	present := conf.GetClientCertificate
	conf.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		seen.asked = true
		if present == nil {
			return &tls.Certificate{}, nil // none
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
	if seen.err = conn.SetReadDeadline(time.Now().Add(refusalWithin)); seen.err != nil {
		return seen
	}
	_, seen.err = conn.Read(make([]byte, 1))
	return seen
}

// target is the host and port of an address, which gRPC takes with the name of a resolver too, and without a port.
func target(address string) string {
	address = address[strings.LastIndex(address, "/")+1:] // dns:///host:port
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(address, "443")
	}
	return address
}
