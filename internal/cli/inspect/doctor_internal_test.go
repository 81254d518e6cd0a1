package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The answers are those of servers: a standalone MongoDB and FerretDB both answer hello without the name of a replica set.
func TestTopologyFinding_KindOfServer_HasItsSeverity(t *testing.T) {
	t.Parallel()
	const mongoDB, ferretDB = `{"version": "8.0.4"}`, `{"version": "7.0.77", "ferretdb": {"version": "v2.7.0"}}`
	for name, c := range map[string]struct{ hello, buildInfo, want string }{
		"Standalone":          {`{"isWritablePrimary": true}`, mongoDB, Broken},
		"FerretDB":            {`{"isWritablePrimary": true}`, ferretDB, Warning},
		"FerretDBWithSetName": {`{"setName": "rs0", "hosts": ["a:27017"]}`, ferretDB, Warning},
		"OneMember":           {`{"setName": "rs0", "hosts": ["a:27017"]}`, mongoDB, Warning},
		"ThreeMembers":        {`{"setName": "rs0", "hosts": ["a:27017", "b:27017", "c:27017"]}`, mongoDB, OK},
		"ShardedCluster":      {`{"msg": "isdbgrid"}`, mongoDB, OK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m membership
			var b build
			require.NoError(t, bson.UnmarshalExtJSON([]byte(c.hello), false, &m))
			require.NoError(t, bson.UnmarshalExtJSON([]byte(c.buildInfo), false, &b))
			found := topologyFinding(m, b)
			require.Equal(t, c.want, found.State, found.What)
			require.Equal(t, c.want == OK, found.Advice == "")
		})
	}
}
