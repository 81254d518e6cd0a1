// Package damaged_test puts bad documents before everything that reads several documents of a collection of locks.
package damaged_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// stray returns a document that every condition of a list matches, and that is no lock document.
func stray(id any) bson.D {
	return bson.D{
		{Key: "_id", Value: id}, {Key: "lockstep", Value: "worker"}, {Key: "idleAt", Value: "never"}, {Key: "attn", Value: bson.A{"x"}},
		{Key: "waiters", Value: bson.A{bson.D{{Key: "since", Value: time.Now()}, {Key: "lockId", Value: "mongo-lock/a/"}}}},
		{Key: "held", Value: bson.A{bson.D{{Key: "lockId", Value: 5}}}}, {Key: "version", Value: bson.D{{Key: "n", Value: "one"}}},
	}
}

// badDocuments are by the name that reports contain.
func badDocuments() map[string]bson.D {
	return map[string]bson.D{
		"config": {{Key: "_id", Value: "config"}}, "bad": stray("bad"), `"$oid"`: stray(bson.NewObjectID()), "$numberInt": stray(7),
		"namespace": stray(bson.D{{Key: "namespace", Value: 1}}), "$date": stray(time.Now()), "true": stray(true),
		"large": append(stray("large"), bson.E{Key: "forced", Value: strings.Repeat("x", 15<<20)}),
	}
}

// callers are the functions that list documents or read several, and the check in TestReaders that calls each; or why none does.
var callers = map[string]string{
	"lockcore/party/command.go:readMajority":         "watcher",
	"lockcore/party/command.go:readOne":              "one document: its error names it",
	"lockcore/party/deadlock.go:Deadlocks":           "deadlocks",
	"lockcore/party/renew.go:extend":                 "no document: reads the time",
	"lockcore/party/status.go:Losses":                "losses",
	"lockcore/party/status.go:Status":                "status",
	"lockcore/party/status.go:list":                  "status",
	"lockcore/party/watch.go:changed":                "versions",
	"lockcore/party/watch.go:poll":                   "watcher",
	"lockcore/party/workflow.go:Replaced":            "replaced",
	"lockcore/mongolock/client.go:once":              "one document: its error names it",
	"lockcore/mongolock/end.go:Purge":                "mongolock",
	"lockcore/mongolock/status.go:Status":            "mongolock",
	"lockcore/mongolock/status.go:locksOf":           "mongolock",
	"internal/currentrun/takeover.go:Inherited":      "status",
	"internal/engine/store/memory.go:List":           "a store of tests",
	"internal/engine/store/memory.go:LoadMajority":   "a store of tests",
	"internal/engine/update/loop.go:carryOut":        "one document: its error names it",
	"internal/engine/update/several.go:nextSteps":    "several",
	"internal/janitor/round.go:handedOver":           "one document: its error names it",
	"internal/janitor/round.go:Round":                "janitor, in package janitor",
	"internal/janitor/round.go:list":                 "janitor, in package janitor",
	"internal/lockactivities/keep.go:releaseIfEnded": "status",
	"internal/lockactivities/wait.go:checkFull":      "one document: its error names it",
	"internal/cli/inspect/doctor.go:activeJanitor":   "one document: its error names it",
	"internal/cli/inspect/doctor.go:documents":       "doctor",
	"internal/cli/inspect/doctor.go:semaphores":      "doctor",
	"internal/cli/inspect/site.go:Losses":            "show",
	"internal/cli/inspect/site.go:Resources":         "resources",
	"internal/cli/inspect/site.go:Show":              "show",
	"internal/cli/inspect/why.go:Why":                "why",
	"internal/cli/repair/repair.go:Clear":            "deletes them: TestClear_EndsHoldsAndClaims, in package repair",
	"internal/cli/repair/repair.go:deleteDamaged":    "one document: it is deleted because it cannot be decoded",
	"internal/cli/ui/listing.go:readResources":       "resources",
	"cmd/lockstep/hold.go:printHolders":              "one document: its error names it",
	"cmd/lockstep/inspect.go:list":                   "resources",
	"cmd/lockstep/inspect.go:run":                    "resources",
	"cmd/lockstep/repair.go:entriesOf":               "one document: its error names it",
}

// A function that lists documents, or reads several, must be in the list of callers.
func TestCallers_AllAreListed(t *testing.T) {
	t.Parallel()
	reads := []string{"List", "list", "Status", "Losses", "Resources", "readMajority", "Load", "LoadMajority", "Versions"}
	const root = "../../.."
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		// Programs that test the library and the database, on collections of their own.
		case d.IsDir() && slices.Contains([]string{"internal/proof", "internal/tools", "internal/cli/verify", "examples"}, name):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				method, isMethod := call.Fun.(*ast.SelectorExpr)
				arg, isName := call.Args[0].(*ast.Ident)
				if isMethod && isName && slices.Contains([]string{"ctx", "bounded", "limited"}, arg.Name) && slices.Contains(reads, method.Sel.Name) {
					found[name+":"+f.Name.Name] = true
				}
				return true
			})
		}
		return nil
	}))
	for name := range callers {
		require.True(t, found[name], "%s is no caller", name)
	}
	for name := range found {
		require.Contains(t, callers, name, "add it, and see what it does with a document that cannot be decoded")
	}
}

// Every reader must report a bad document or leave it out, and answer for all others.
func TestReaders_BadDocuments_HideNoOther(t *testing.T) {
	t.Parallel()
	for name, bad := range badDocuments() {
		t.Run(strings.Trim(name, `"$`), func(t *testing.T) {
			t.Parallel()
			readAll(t, name, bad)
		})
	}
}

func readAll(t *testing.T, name string, bad bson.D) {
	t.Helper()
	ctx := t.Context()
	coll := testenv.Mongo(t).Collection("locks")
	l := open(t, coll)
	require.NoError(t, l.CreateIndexes(ctx))
	raw := store.New(coll)
	require.NoError(t, raw.RegisterWorker(ctx, store.Worker{Namespace: "n", Queue: "q", Identity: "i"}))
	leases, err := l.TryEnter(ctx, request("a", "z/1", "z/2"))
	require.NoError(t, err)
	_, err = l.Enter(ctx, request("b", "z/1"))
	require.ErrorIs(t, err, party.ErrBusy)
	locks := mongolock.NewClient(coll)
	require.NoError(t, locks.XLock(ctx, "z/3", "a", mongolock.LockDetails{}))
	_, err = coll.InsertOne(ctx, bad)
	require.NoError(t, err)
	badName, isName := bad[0].Value.(string)
	listed := func(filter party.Filter) (names []string, damaged []error) {
		for s, err := range l.Status(ctx, filter) {
			if errors.Is(err, party.ErrDamaged) {
				require.NotEmpty(t, s.Resource)
				damaged = append(damaged, err)
				continue
			}
			require.NoError(t, err)
			names = append(names, s.Resource)
		}
		return names, damaged
	}
	names, damaged := listed(party.Filter{})
	require.Subset(t, names, []string{"z/1", "z/2", "z/3"})
	if isName {
		require.Len(t, damaged, 1)
		require.ErrorContains(t, damaged[0], name)
	}
	names, damaged = listed(party.Filter{Contended: true})
	require.Contains(t, names, "z/1")
	if len(bad) > 1 {
		require.Len(t, damaged, 1, "it has attn")
	}
	for _, err := range l.Losses(ctx, party.Filter{Contended: true}) {
		require.ErrorIs(t, err, party.ErrDamaged)
	}
	_, err = l.Deadlocks(ctx)
	require.NoError(t, err)
	_, err = l.Replaced(ctx, "a", "run", "z/1", "config", "bad", "large")
	require.NoError(t, err)
	versions, err := raw.Versions(ctx, "z/1", "bad", "config", "large")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	loaded, err := raw.LoadMajority(ctx, "z/1", "bad", "config", "large")
	require.NoError(t, err)
	require.NotNil(t, loaded.Docs["z/1"])
	require.Equal(t, isName, len(loaded.Damaged) == 1)
	workers, err := raw.Workers(ctx, time.Hour)
	require.NoError(t, err)
	require.Len(t, workers, 1)
	for _, err := range raw.List(ctx, rules.Query{Waiting: true}) {
		if err != nil {
			require.ErrorIs(t, err, party.ErrDamaged)
		}
	}
	site := &inspect.Site{Locker: l, Collection: coll}
	resources, err := site.Resources(ctx, party.Filter{})
	require.NoError(t, err)
	require.Equal(t, isName, resources[0].Damaged != "", "it comes first")
	why, err := site.Why(ctx, "b")
	require.NoError(t, err)
	require.Len(t, why.Waits, 1)
	if isName {
		shown, ok, err := site.Show(ctx, badName)
		require.NoError(t, err)
		require.True(t, ok)
		require.Contains(t, shown.Damaged, "cannot be decoded")
		findings := (&inspect.Doctor{Site: *site, ReadOnly: true, NoTemporal: errors.New("no Temporal")}).Examine(ctx)
		i := slices.IndexFunc(findings, func(f inspect.Finding) bool { return f.About == "documents" })
		require.Equal(t, inspect.Broken, findings[i].State)
		require.Contains(t, findings[i].What, badName)
	}
	found, err := locks.Status(ctx, mongolock.Filter{})
	require.Len(t, found, 1)
	if err != nil {
		require.ErrorIs(t, err, party.ErrDamaged)
	}
	found, _ = locks.Unlock(ctx, "a")
	require.Len(t, found, 1)
	_, err = mongolock.NewPurger(locks).Purge(ctx)
	if err != nil {
		require.ErrorIs(t, err, party.ErrDamaged)
	}
	if isName { // a Leave of several, one of which cannot be read
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		other := leases[0]
		other.Resource = badName
		err = open(t, coll).Leave(short, other, leases[0], leases[1])
		require.ErrorIs(t, err, party.ErrDamaged)
		names, _ = listed(party.Filter{LockID: "a"})
		require.Empty(t, names, "the others were left")
	}
}

func open(t *testing.T, coll *mongo.Collection) *party.Locker {
	t.Helper()
	l, err := party.New(coll, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func request(lockID string, names ...string) party.Request {
	r := party.Request{LockID: lockID, Part: "p", Order: party.Order{Schedule: 1, Attempt: 1}}
	for _, name := range names {
		r.Resources = append(r.Resources, lockcore.Exclusive(name))
	}
	return r
}
