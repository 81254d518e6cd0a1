package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/temporal-lockstep/lockstep/lockcore/internal/store/storetest"
)

type (
	d = bson.D
	a = bson.A
)

func TestChecker(t *testing.T) {
	t.Parallel()
	update := func(q, u any) d { return d{{"update", "c"}, {"updates", a{d{{"q", q}, {"u", u}}}}, {"$db", "x"}} }
	aggregate := func(stages ...any) d { return d{{"aggregate", "c"}, {"pipeline", a(stages)}} }
	for name, test := range map[string]struct {
		command d
		refused string
	}{
		"Replacement":         {update(d{{"_id", "$x"}}, d{{"_id", "$x"}, {"s", "$y"}}), ""},
		"Operators":           {update(d{{"held.id", d{{"$in", a{"x"}}}}}, d{{"$max", d{{"held.$[p0].end", 1}}}}), ""},
		"Read":                {aggregate(d{{"$match", d{{"_id", "$x"}}}}, d{{"$set", d{{"at", "$$NOW"}}}}), ""},
		"UpdatePipeline":      {update(d{{"_id", "x"}}, a{d{{"$set", d{{"x", 1}}}}}), "a pipeline"},
		"UpdateExpr":          {update(d{{"$expr", true}}, d{{"x", 1}}), "$expr"},
		"UpdateUnset":         {update(d{{"_id", "x"}}, d{{"$unset", d{{"x", 1}}}}), "$unset"},
		"UpdateNested":        {update(d{{"a", a{d{{"b", d{{"$where", "x"}}}}}}}, d{{"x", 1}}), "$where"},
		"UpdatePositional":    {update(d{{"_id", "x"}}, d{{"$set", d{{"held.$.x", 1}}}}), "held.$.x"},
		"UpdateAllPositions":  {update(d{{"_id", "x"}}, d{{"$set", d{{"held.$[].x", 1}}}}), "held.$[].x"},
		"ReadExpr":            {aggregate(d{{"$match", d{{"$expr", true}}}}), "$expr"},
		"ReadCond":            {aggregate(d{{"$set", d{{"at", d{{"$cond", a{}}}}}}}), "$cond"},
		"ReadFieldPath":       {aggregate(d{{"$set", d{{"x", "$y"}}}}), "$y"},
		"ReadGroup":           {aggregate(d{{"$group", d{{"_id", nil}}}}), "$group"},
		"InsertedOperator":    {d{{"insert", "c"}, {"documents", a{d{{"x", d{{"$set", 1}}}}}}}, "$set"},
		"FindAndModify":       {d{{"findAndModify", "c"}}, "findAndModify"},
		"OperatorsInOneOther": {d{{"find", "c"}, {"filter", d{{"x", d{{"$gt", 1}}}}}}, "$gt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			monitor, checker := storetest.Monitor()
			raw, err := bson.Marshal(test.command)
			require.NoError(t, err)
			monitor.Started(t.Context(), &event.CommandStartedEvent{CommandName: test.command[0].Key, Command: raw})
			require.Len(t, checker.Commands(), 1)
			require.Equal(t, 1, checker.Count(test.command[0].Key))
			if test.refused == "" {
				require.NoError(t, checker.Err())
				return
			}
			require.ErrorContains(t, checker.Err(), test.refused)
		})
	}
}
