package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestWrote_Answer_CountsDocuments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer bson.D
		want   bool
	}{
		{bson.D{{Key: "n", Value: int32(1)}, {Key: "nModified", Value: int32(1)}}, true},
		{bson.D{{Key: "n", Value: int32(0)}, {Key: "nModified", Value: int32(0)}}, false}, // a swap that found another version
		{bson.D{{Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{}}}, false},
		{bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(1)}}}, {Key: "value", Value: nil}}, true}, // an upsert
		{bson.D{{Key: "lastErrorObject", Value: bson.D{{Key: "n", Value: int32(0)}}}, {Key: "value", Value: nil}}, false},
		{bson.D{{Key: "value", Value: bson.D{{Key: "_id", Value: "x"}}}}, true},
		{bson.D{{Key: "ok", Value: 1.0}}, false},
	} {
		reply, err := bson.Marshal(c.answer)
		require.NoError(t, err)
		require.Equal(t, c.want, wrote(reply), "%v", c.answer)
	}
}
