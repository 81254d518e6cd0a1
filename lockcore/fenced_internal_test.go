package lockcore

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Only the registry of the caller's collection may know how to encode a type.
func TestCheckUpdate_TypeOfTheCallersRegistry_IsAccepted(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkUpdate(bson.M{"$set": bson.M{"x": complex(1, 2)}}))
	require.NoError(t, checkUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: complex(1, 2)}}}}))
	require.Error(t, checkUpdate([]bson.D{{{Key: "$set", Value: bson.D{{Key: "x", Value: complex(1, 2)}}}}}))
}
