package connect

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// TemporalFlags are what the flags of a command say.
type TemporalFlags struct {
	// Address and Namespace are empty if they were not given.
	Address, Namespace string
	// TLS is nil if it was not given.
	TLS *bool
}

// Frontend is where a Temporal server is, and how it is spoken to.
type Frontend struct {
	// Options are those of a client; add a logger and interceptors.
	Options client.Options
	// AddressFrom names the flag, variable or file that says the address; empty if nothing does and it is Temporal's default.
	AddressFrom string

	flags   TemporalFlags
	secrets []string
}

// FindFrontend says where Temporal is and how it is spoken to: as the flags say, else as the environment says, else as
// the configuration file says. An empty variable counts as not set. Certificates are read, so that what cannot be used is
// told at once, by a SettingError. No connection is made.
func FindFrontend(flags TemporalFlags) (*Frontend, error) {
	p, err := readProfile()
	if err != nil {
		return nil, err
	}
	f := &Frontend{flags: flags, secrets: []string{p.APIKey}}
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
		return nil, &SettingError{Setting: f.AddressFrom, Value: p.Address, Want: "want host:port, without a scheme"}
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

// Dial connects, and asks for the namespace, so that credentials are known to be good: a server answers before it looks at
// them. What is wrong is told by a FrontendError, in a few seconds at most.
func (f *Frontend) Dial(ctx context.Context) (client.Client, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.DialContext(limited, f.Options)
	if err != nil {
		return nil, f.explain(ctx, err)
	}
	_, err = c.WorkflowService().DescribeNamespace(limited, &workflowservice.DescribeNamespaceRequest{Namespace: f.Options.Namespace})
	var unimplemented *serviceerror.Unimplemented
	if err != nil && !errors.As(err, &unimplemented) { // a gateway may let through what is needed alone
		c.Close()
		return nil, f.explain(ctx, err)
	}
	return c, nil
}
