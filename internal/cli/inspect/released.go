package inspect

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// LateWrites is the end of a text about a holder that may still work after its hold was ended by force.
const LateWrites = "only fencing tokens refuse what it writes in the meantime, or after a stall"

// AfterRelease describes who may still work under a hold that has just been ended by force, and for how long at most. now is set if others do not
// wait for it. It returns the empty string if no process can: for a request, a claim, or a hold for maintenance.
func (e *Entry) AfterRelease(now bool) string {
	if e.FirstFence == 0 || e.LockID == Maintenance {
		return ""
	}
	name := table.Plain(e.Party.Name)
	running, isDraining := e.Running, e.State == lockcore.StateDraining
	if isDraining {
		running = []lockcore.Running{{Part: e.Part, Silent: e.Silent, ExpiresIn: e.ExpiresIn}}
	}
	switch {
	case len(running) == 0 && e.Party.Workflow != "":
		return fmt.Sprintf("no step of %s runs under it: its workflow learns of the release at its next step here, or when it commits. Within five minutes of the latest use "+
			"a commit does not ask, and lockstep why reports the loss afterwards", name)
	case len(running) == 0:
		return fmt.Sprintf("nothing of %s runs under it: it learns of the release when it next asks", name)
	}
	if e.Host != "" {
		name += " on " + table.Plain(e.Host)
	}
	others := "Others wait until it has left"
	if now {
		others = "Others do not wait for that"
	}
	ttl := time.Duration(0)
	for _, r := range running {
		if r.ExpiresIn == lockcore.Forever {
			return fmt.Sprintf("%s may still work under it. It never renews, so it learns of the release only when it leaves. %s; %s", name, others, LateWrites)
		}
		ttl = max(ttl, r.Silent+r.ExpiresIn)
	}
	return fmt.Sprintf("%s may still work under it: it learns of the release at its next renewal, in %s at most, or stops in %s at most if it does not reach the database. %s; %s",
		name, Short(ttl/3), Short(ttl), others, LateWrites)
}
