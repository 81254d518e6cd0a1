package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestCheck_PreviousBuildWorksAfterThePolicy_IsFound(t *testing.T) {
	t.Parallel()
	set := time.Unix(1000, 0)
	at := func(s int) time.Time { return set.Add(time.Duration(s) * time.Second) }
	refusal := Record{Process: previous, What: Asked, At: at(3), Error: `the collection "locks" has another layout`}
	loss := Record{Process: previous, What: Lost, At: at(5), Error: "expired"}
	for name, c := range map[string]struct {
		record Record
		finds  string
	}{
		"refused again":             {refusal, ""},
		"writes at first":           {Record{Process: previous, What: Wrote, At: at(9)}, ""},
		"writes later":              {Record{Process: previous, What: Wrote, At: at(11)}, "still works"},
		"runs a step":               {Record{Process: previous, What: Ran, At: at(11)}, "still works"},
		"undoes a step":             {Record{Process: previous, What: Undone, At: at(11)}, "still works"},
		"gets a lock":               {Record{Process: previous, What: Asked, At: at(11)}, "still works"},
		"another error":             {Record{Process: previous, What: Asked, At: at(4), Error: "no primary"}, "another error"},
		"the present build works":   {Record{Process: present, What: Ran, At: at(11)}, ""},
		"the present build loses":   {Record{Process: present, What: Lost, At: at(5), Error: "no"}, "the present build has lost"},
		"the present build refused": {Record{Process: present, What: Asked, At: at(-1), Error: "no"}, "the present build was refused"},
	} {
		err := check([]Record{refusal, loss, c.record}, set, at(10))
		if c.finds == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.finds, name)
		}
	}
	require.ErrorContains(t, check([]Record{refusal}, set, at(10)), "has not lost")
}

func TestChanged_AnswersOfCommands_CountsDocuments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		answer  bson.D
		want    int
	}{
		{"update", bson.D{{Key: "n", Value: 2}, {Key: "nModified", Value: 1}}, 1},
		{"update", bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 0}}, 0},
		{"update", bson.D{{Key: "n", Value: 1}, {Key: "nModified", Value: 0}, {Key: "upserted", Value: bson.A{bson.D{{Key: "index", Value: 0}}}}}, 1},
		{"insert", bson.D{{Key: "n", Value: 1}}, 1},
		{"delete", bson.D{{Key: "n", Value: 0}}, 0},
		{"find", bson.D{{Key: "cursor", Value: bson.D{}}}, 0},
	} {
		raw, err := bson.Marshal(c.answer)
		require.NoError(t, err)
		require.Equal(t, c.want, changed(c.command, raw), "%s %v", c.command, c.answer)
	}
}

func TestSharedSagas_StepsOfTwoBuilds_CountOnce(t *testing.T) {
	t.Parallel()
	ran := func(process, saga string) Record { return Record{What: Ran, Process: process, Saga: saga} }
	require.Equal(t, 1, sharedSagas([]Record{ran(previous, "a"), ran(present, "a"), ran(previous, "a"), ran(previous, "b"), {What: Undone, Process: present, Saga: "b"}}))
}
