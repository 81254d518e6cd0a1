package update

import (
	"flag"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

var runMutants = flag.Bool("mutants", false, "run the exploration on each mutant")

// mutant is a defect, made by edits of the source.
type mutant struct {
	name  string
	edits []edit
}

// edit changes a node of a declaration: package, declaration, path to the node, change.
type edit mutate.Edit

// Packages of the edits.
const (
	rulesPackage  = "internal/engine/rules"
	storePackage  = "internal/engine/store"
	updatePackage = "internal/engine/update"
)

// mutants are defects of the update loop, of the store, and of the rules' part in them: which answers need a write. The other rules
// have mutants of their own in package rules.
var mutants = []mutant{
	{"an extend without a new version", []edit{{storePackage, "Memory.update", "assign 3", "_ = r"}}},
	{"expiry judged from the cache", []edit{{updatePackage, "Line.next", "if 3 && 2", "$1"}}},
	{"busy answered from the cache", []edit{{updatePackage, "Line.replyFromRead", "cond", "true"}, {updatePackage, "Line.replyFromRead", "for cond", "true"}}},
	{"a read that is older than the call", []edit{{updatePackage, "Line.replyFromRead", "for cond", "true"}}},
	{"a bulk that goes on after a conflict", []edit{{storePackage, "Memory.Swap", "return 3", "defer func($1 int) { done = $1 }($1); continue"}}},
	{"a conflict in a bulk counts as a swap", []edit{{updatePackage, "swapResult", "case 3 cond", "$1 <= $2"}}},
	{"a bulk that fails is forgotten", []edit{{updatePackage, "swapResult", "return 2", "if i > done { return Unsent{} }; $"}}},
	{"a bulk that stops proves that the rest was not applied", []edit{{updatePackage, "swapResult", "return 4", "if i > done { return Unsent{} }; $"}}},
	{"a bulk goes on after an answer that ends it", []edit{{updatePackage, "Ticket.proceeds", "&& 2", "$ && false"}}},
	{"what is owed must have been sent", []edit{{updatePackage, "Line.Owes", "|| 3", "drop"}}},
	{"a conflict taken for a proof", []edit{{updatePackage, "Line.Handle", "case 7 stmt", "answers := l.sent.Replies; $; var told []Reply; for _, t := range answers { l.remove(t.Call); told = append(told, Reply{Call: t.Call, Answer: Answer{Err: store.ErrNotSent}}) }; return told"}}},
	{"a debt forgotten after an unknown outcome", []edit{{updatePackage, "Line.failed", "if assign", "drop"}}},
	{"a debt paid by a conflict", []edit{{updatePackage, "Line.conflicted", "if 2", "l.debt, l.owed = false, nil; $"}}},
	{"owed operations are not applied", []edit{{updatePackage, "Line.apply", "assign 7 arg 2", "drop"}}},
	{"all that is owed is forgotten by a swap", []edit{{updatePackage, "Line.swapped", "call 2", "true"}}},
	{"superseded without a swap", []edit{{rulesPackage, "Result.refused", "|| 1", "$1 == Superseded || $"}}},
	{"lost without a swap", []edit{{rulesPackage, "Result.refused", "|| 1", "$1 == Lost || $"}}},
	{"again without a swap", []edit{{rulesPackage, "Result.refused", "|| 1", "$1 == Again || $"}}},
	{"an abandoned call is not taken back", []edit{{updatePackage, "Line.Handle", "case 3 stmt", "l.remove(e.Call)"}}},
	{"a call that fails is not taken back", []edit{{updatePackage, "Line.failed", "for 2 stmt 6", "l.remove(c)"}}},
	{"a call is not unknown after a failure", []edit{{updatePackage, "Line.failed", "for assign", "_ = t"}}},
	{"a call is not unknown after a conflict", []edit{{updatePackage, "Line.conflicted", "target", "drop"}}},
	{"an extend advances what was only read", []edit{{updatePackage, "Line.extended", "|| 4", "drop"}}},
	{"the cache survives a conflict", []edit{{updatePackage, "Line.conflicted", "assign 3 target", "drop"}}},
	{"the cache survives a failure", []edit{{updatePackage, "Line.failed", "assign 3", "drop"}}},
	{"an old read dates what comes later", []edit{{updatePackage, "Line.next", "assign", "drop"}}},
	{"sleeping calls are not served", []edit{{updatePackage, "application.applySleepers", "&& 3", "false"}}},
	{"a swap that was not sent is forgotten with its calls", []edit{{updatePackage, "Line.failed", "elem 2", "drop"}}},
	{"a sleeping call is told that it has failed", []edit{{updatePackage, "Line.failed", "if 4 cond", "false"}}},
	{"watchers are not told of new policies", []edit{{updatePackage, "Lines.Adopt", "if 3 cond", "$ && false"}}},
	{"a line decides with the policies of its first read", []edit{{updatePackage, "Line.loaded", "assign 4", "if l.at.Policies != nil { now.Policies = l.at.Policies }; $"}}},
	{"a policy ends by a time that was not read", []edit{{rulesPackage, "Document.ExpiresBy", "if 2 cond", "false"}}},
	{"watchers do not poll when a policy ends", []edit{{rulesPackage, "Document.Queue", "if 8 cond", "false"}}},
	{"an extend does not touch the cache in flight", []edit{{updatePackage, "Line.forget", "target 4", "drop"}}},
}

// TestMutants checks that each mutant can still be made. With -mutants it also checks that the exploration
// finds each of them.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		overlay := m.overlay(t)
		if *runMutants {
			t.Run(m.name, func(t *testing.T) { t.Parallel(); m.run(t, overlay) })
		}
	}
}

func (m *mutant) overlay(t *testing.T) string {
	t.Helper()
	var edits []mutate.Edit
	for _, e := range m.edits {
		edits = append(edits, mutate.Edit(e))
	}
	overlay, err := mutate.Overlay("../../..", t.TempDir(), edits...)
	require.NoError(t, err, m.name)
	return overlay
}

var foundBy = regexp.MustCompile(`: (.*): depth (\d+), .*`)

func (m *mutant) run(t *testing.T, overlay string) {
	binary := filepath.Join(t.TempDir(), "explore.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-c", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), binary, "-test.run", "TestExplor", "-test.failfast", "-test.v", "-states", "7000").CombinedOutput()
	if err == nil {
		t.Errorf("not found: %s", m.name)
		return
	}
	lines := foundBy.FindAllStringSubmatch(string(out), -1)
	why := regexp.MustCompile(`Received unexpected error:\s*\S.*|panic: .*|explore_several.*`).FindString(string(out))
	if len(lines) == 0 {
		t.Logf("found: %s: %s", m.name, why)
		return
	}
	last := lines[len(lines)-1]
	t.Logf("found: %s: in %q at depth %s: %s", m.name, last[1], last[2], why)
}
