package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fixture is a Locker on a collection of the test's own.
type fixture struct {
	*lockcore.Locker
	db *mongo.Database
}

func setup(t *testing.T, cfg lockcore.Config) fixture {
	t.Helper()
	db := testenv.Mongo(t)
	l, err := lockcore.New(db.Collection("locks"), cfg)
	require.NoError(t, err)
	require.NoError(t, l.CreateIndexes(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return fixture{l, db}
}
