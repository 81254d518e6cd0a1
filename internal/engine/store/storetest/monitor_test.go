package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/temporal-lockstep/lockstep/internal/engine/store/storetest"
)

func TestChecker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ command, refused string }{
		"Replacement":        {`{"update": "c", "updates": [{"q": {"_id": "$x"}, "u": {"_id": "$x", "s": "$y"}}], "$db": "x"}`, ""},
		"Operators":          {`{"update": "c", "updates": [{"q": {"entries.id": {"$all": ["x"]}}, "u": {"$max": {"entries.$[p0].end": 1}}}]}`, ""},
		"Read":               {`{"find": "c", "filter": {"_id": {"$in": ["$x"]}}, "projection": {"x": 1, "at": "$$NOW"}}`, ""},
		"UpdatePipeline":     {`{"update": "c", "updates": [{"q": {}, "u": [{"$set": {"x": 1}}]}]}`, "a pipeline"},
		"UpdateExpr":         {`{"update": "c", "updates": [{"q": {"$expr": true}, "u": {"x": 1}}]}`, "$expr"},
		"UpdateRename":       {`{"update": "c", "updates": [{"q": {}, "u": {"$rename": {"x": "y"}}}]}`, "$rename"},
		"UpdateNested":       {`{"update": "c", "updates": [{"q": {"a": [{"b": {"$where": "x"}}]}, "u": {"x": 1}}]}`, "$where"},
		"UpdatePositional":   {`{"update": "c", "updates": [{"q": {}, "u": {"$set": {"entries.$.x": 1}}}]}`, "entries.$.x"},
		"UpdateAllPositions": {`{"update": "c", "updates": [{"q": {}, "u": {"$set": {"entries.$[].x": 1}}}]}`, "entries.$[].x"},
		"ArrayFilter":        {`{"update": "c", "updates": [{"q": {}, "u": {"x": 1}, "arrayFilters": [{"p.x": {"$gt": 1}}]}]}`, "$gt"},
		"ReadExpr":           {`{"find": "c", "filter": {"$expr": true}}`, "$expr"},
		"ReadCond":           {`{"find": "c", "projection": {"at": {"$cond": []}}}`, "$cond"},
		"ReadFieldPath":      {`{"find": "c", "projection": {"x": "$y"}}`, "$y"},
		"InsertedOperator":   {`{"insert": "c", "documents": [{"x": {"$set": 1}}]}`, "$set"},
		"FindOperator":       {`{"find": "c", "filter": {"x": {"$where": "1"}}}`, "$where"},
		"Pipeline":           {`{"aggregate": "c", "pipeline": []}`, "aggregate"},
		"OtherCommand":       {`{"findAndModify": "c"}`, "findAndModify"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			monitor, checker := storetest.Monitor()
			var raw bson.Raw
			require.NoError(t, bson.UnmarshalExtJSON([]byte(test.command), false, &raw))
			elements, err := raw.Elements()
			require.NoError(t, err)
			name := elements[0].Key()
			monitor.Started(t.Context(), &event.CommandStartedEvent{CommandName: name, Command: raw})
			require.Equal(t, []storetest.Command{{Name: name, Body: raw}}, checker.Commands())
			require.Equal(t, 1, checker.Count(name))
			if test.refused == "" {
				require.NoError(t, checker.Err())
				return
			}
			require.ErrorContains(t, checker.Err(), test.refused)
		})
	}
}
