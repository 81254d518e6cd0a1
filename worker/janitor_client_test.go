package worker_test

import (
	"crypto/tls"
	"fmt"
	"testing"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
	"github.com/temporal-lockstep/lockstep/worker"
)

// The janitor's own connection is made as the client was, which has applied its credentials to its
// options already.
func TestTheJanitorHasTheClientsCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	authority := tlsfront.NewAuthority(t)
	front := tlsfront.New(t, authority.AskingClients(t), testenv.TemporalAddress(t))
	pair := authority.Issue(t, "lockstep")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(oftenOn(b))
	require.NoError(t, err)
	b.plugin = plugin
	b.client = b.dial(t, client.Options{
		HostPort: front.Address, Credentials: client.NewMTLSCredentials(cert),
		ConnectionOptions: client.ConnectionOptions{TLS: &tls.Config{RootCAs: authority.Pool(), ServerName: "127.0.0.1"}},
	})
	b.work(t, sdkworker.Options{}, nil)
	b.untilOffice(t, true)
}

// A client that shares another one's connection gives the plugin that connection too.
func TestTheJanitorSharesTheConnectionThatTheClientShares(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plugin, err := worker.NewPlugin(oftenOn(b))
	require.NoError(t, err)
	b.plugin = plugin
	c, err := client.NewClientFromExisting(b.client, client.Options{Plugins: []client.Plugin{plugin}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.work(t, sdkworker.Options{}, nil)
	b.untilOffice(t, true)
}

// What a closed run has left is released, and a part of it that still trusts its lease drains.
func TestAPartThatStillTrustsDrainsWhenItsRunIsClosed(t *testing.T) {
	t.Parallel()
	b := leftBehind(setup(t))
	b.work(t, sdkworker.Options{}, nil)
	run := b.ended(t)
	req := request(lockID(run))
	req.Persist, req.Run = true, run.GetRunID()
	leases, err := b.locker.Core().Enter(t.Context(), req, false)
	require.NoError(t, err)
	require.Equal(t, janitor.Result{Listed: 1, Asked: 1, Closed: 1, Released: 1}, b.round(t))
	free, err := b.isFree(t.Context(), account.Name)
	require.NoError(t, err)
	require.False(t, free, "its process may still trust the lock")
	_, err = b.locker.Core().Renew(t.Context(), leases...)
	require.Error(t, err)
	require.NoError(t, b.locker.Leave(t.Context(), leases...))
	b.requireFree(t, account.Name)
}

func TestEachRunIsAskedAboutOnceHoweverManyLocksItHas(t *testing.T) {
	t.Parallel()
	b := leftBehind(setup(t))
	b.work(t, sdkworker.Options{}, nil)
	for i := range 5 {
		run := b.ended(t)
		for j := range 10 {
			b.hold(t, lockID(run), run.GetRunID(), fmt.Sprintf("%d/%d", i, j))
		}
	}
	require.Equal(t, janitor.Result{Listed: 50, Asked: 5, Closed: 5, Released: 50}, b.round(t))
	require.Zero(t, b.round(t))
}
