package mongoengine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// modelOperations is how many random operations are held to the specification, at least.
const modelOperations = 10_000

// TestPipelinesFollowTheSpecification runs random operations of a few parties on one resource at a time. After each,
// the stored document must be the one that the specification makes of the document before, at the time
// that the database used, and nobody who watches may see a promise broken.
func TestPipelinesFollowTheSpecification(t *testing.T) {
	t.Parallel()
	h := onMongo(t)
	var operations, resources atomic.Int64
	for i := range 4 {
		h := h
		h.forgets = i%2 == 1
		t.Run(fmt.Sprintf("in parallel %d", i), func(t *testing.T) {
			t.Parallel()
			for operations.Load() < modelOperations {
				rapid.Check(t, func(rt *rapid.T) {
					m := &model{eng: h, name: fmt.Sprintf("$resource/%d", resources.Add(1))}
					for step := range rapid.IntRange(1, 40).Draw(rt, "operations") {
						m.step(rt, step)
						operations.Add(1)
					}
				})
			}
		})
	}
}

type model struct {
	eng   harness
	watch lockcoretest.Invariants
	name  string
	doc   engine.Document
}

func picker(t *rapid.T) func(int) int {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
}

func (m *model) step(t *rapid.T, step int) {
	ctx := t.Context()
	pick := picker(t)
	var op any
	switch kind := pick(12); {
	case kind == 1 && m.doc.ID != "":
		by := time.Duration(1+pick(70)) * time.Second
		require.NoError(t, m.eng.Travel(ctx, m.name, by))
		m.watch.Shift(by)
		m.doc = m.read(t)
		return
	case kind == 2 && m.doc.ID != "":
		m.renewAll(t, lockcoretest.Batch(pick, m.doc))
		return
	default:
		op = lockcoretest.Random(pick, m.doc, m.name, step)
	}
	_, err := lockcoretest.Apply(ctx, m.eng, op)
	require.NoError(t, err)
	stored := m.read(t)
	m.compare(t, op, lockcoretest.Next(m.doc, op, stored.At), stored)
}

// renewAll holds a batch of renewals to the specification.
func (m *model) renewAll(t *rapid.T, batch []engine.Renew) {
	if len(batch) == 0 {
		return
	}
	renewed, err := m.eng.RenewAll(t.Context(), batch)
	require.NoError(t, err)
	stored := m.read(t)
	want, extended := lockcoretest.Extend(m.doc, batch, stored.At)
	for _, yes := range renewed {
		require.Equal(t, extended, yes)
	}
	if !extended {
		batch = nil
	}
	m.compare(t, batch, want, stored)
}

// compare checks a step, and goes on from the document that it left.
func (m *model) compare(t *rapid.T, op any, want, stored engine.Document) {
	require.Empty(t, difference(t, want, stored), "%+v", op)
	require.NoError(t, m.watch.Check(lockcoretest.Step{Op: op, Before: m.doc, After: stored}))
	m.doc = stored
}

func (m *model) read(t *rapid.T) engine.Document {
	d, err := m.eng.stored(t.Context(), m.name)
	require.NoError(t, err)
	slices.Sort(d.Attn) // a set
	return d
}

// difference shows from where to where two documents differ.
func difference(t *rapid.T, want, got engine.Document) string {
	a, b := render(t, want), render(t, got)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out strings.Builder
	for _, line := range a {
		out.WriteString("\n- " + line)
	}
	for _, line := range b {
		out.WriteString("\n+ " + line)
	}
	return out.String()
}

func render(t *rapid.T, d engine.Document) []string {
	raw, err := bson.MarshalExtJSONIndent(d, false, false, "", "  ")
	require.NoError(t, err)
	return strings.Split(string(raw), "\n")
}
