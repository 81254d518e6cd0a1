package mongoengine_test

import (
	"testing"

	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestEngineOnMongoDBConforms(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"that knows": false, "that forgets": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := onMongo(t)
			h.forgets = forgets
			lockcoretest.Conformance(t, func(*testing.T) lockcoretest.Harness { return h })
		})
	}
}
