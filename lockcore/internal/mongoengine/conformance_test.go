package mongoengine_test

import (
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestEngineOnMongoDBConforms(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	lockcoretest.Conformance(t, func(*testing.T) lockcoretest.Harness { return h })
}
