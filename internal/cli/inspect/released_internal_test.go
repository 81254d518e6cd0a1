package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// After a forced release its operator must know who may still work, and until when.
func TestAfterRelease_SaysWhoMayStillWork(t *testing.T) {
	t.Parallel()
	const late = "; only fencing tokens refuse what it writes in the meantime, or after a stall"
	entry := func(change func(*Entry)) *Entry {
		e := &Entry{Party: Party{Name: "transfer-7", Workflow: "transfer-7"}, Status: lockcore.Status{
			Holder:  lockcore.Holder{LockID: "w", Host: "worker-1", FirstFence: 7, State: lockcore.StateHolding, Kept: true},
			Running: []lockcore.Running{{Part: "1/Debit", Silent: 20 * time.Second, ExpiresIn: 28 * time.Second}},
		}}
		change(e)
		return e
	}
	for name, c := range map[string]struct {
		change func(*Entry)
		now    bool
		want   string
	}{
		"a step runs": {func(*Entry) {}, false,
			"transfer-7 on worker-1 may still work under it: it learns of the release at its next renewal, in 16 s at most, or stops in 48 s at most if it does not reach the database. Others wait until it has left" + late},
		"a step runs, now": {func(*Entry) {}, true,
			"transfer-7 on worker-1 may still work under it: it learns of the release at its next renewal, in 16 s at most, or stops in 48 s at most if it does not reach the database. Others do not wait for that" + late},
		"the longest of several": {func(e *Entry) { e.Running = append(e.Running, lockcore.Running{ExpiresIn: time.Minute}) }, true,
			"transfer-7 on worker-1 may still work under it: it learns of the release at its next renewal, in 20 s at most, or stops in 1 min at most if it does not reach the database. Others do not wait for that" + late},
		"a part drains": {func(e *Entry) {
			e.State, e.Running, e.Silent, e.ExpiresIn = lockcore.StateDraining, nil, 10*time.Second, 20*time.Second
		}, true,
			"transfer-7 on worker-1 may still work under it: it learns of the release at its next renewal, in 10 s at most, or stops in 30 s at most if it does not reach the database. Others do not wait for that" + late},
		"without an end": {func(e *Entry) { e.Running[0].ExpiresIn = lockcore.Forever }, false,
			"transfer-7 on worker-1 may still work under it. It never renews, so it learns of the release only when it leaves. Others wait until it has left" + late},
		"kept": {func(e *Entry) { e.Running = nil }, false,
			"no step of transfer-7 runs under it: its workflow learns of the release at its next step here, or when it commits. Within five minutes of the latest use a commit does not ask, " +
				"and lockstep why reports the loss afterwards"},
		"kept by a program": {func(e *Entry) { e.Running, e.Party = nil, Party{Name: "job"} }, false, "nothing of job runs under it: it learns of the release when it next asks"},
		"a request":         {func(e *Entry) { e.FirstFence = 0 }, false, ""},
		"maintenance":       {func(e *Entry) { e.LockID = Maintenance }, false, ""},
	} {
		require.Equal(t, c.want, entry(c.change).AfterRelease(c.now), name)
	}
}
