package testenv

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/tools/failedtasks"
)

// allowed contains the failures that tests have asked for, by the test's task queue.
var allowed = struct {
	sync.Mutex
	texts map[string][]string
}{texts: map[string][]string{}}

// AllowFailedTasks makes the check of a test's task queue (see TaskQueue) ignore failed workflow tasks whose failure contains one of the
// texts. Use it for a test that provokes such failures.
func AllowFailedTasks(t testing.TB, taskQueue string, texts ...string) {
	t.Helper()
	allowed.Lock()
	defer allowed.Unlock()
	allowed.texts[taskQueue] = append(allowed.texts[taskQueue], texts...)
}

// NoFailedTasks fails the test for each workflow task that has failed in a namespace, on a task queue or on one whose name begins with
// it and a hyphen. The SDK repeats such a task, so a test that looks only at results passes.
func NoFailedTasks(t testing.TB, c client.Client, namespace, taskQueue string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), answerWithin)
	defer cancel()
	failed, err := failedtasks.List(ctx, c.WorkflowService(), namespace, taskQueue)
	if err != nil {
		t.Errorf("search for failed workflow tasks on %q: %v", taskQueue, err)
	}
	allowed.Lock()
	defer allowed.Unlock()
	for _, text := range failed {
		if !slices.ContainsFunc(allowed.texts[taskQueue], func(allowed string) bool { return strings.Contains(text, allowed) }) {
			t.Errorf("a workflow task has failed, and the test does not allow it with testenv.AllowFailedTasks: %s", text)
		}
	}
}
