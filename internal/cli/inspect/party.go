package inspect

import (
	"cmp"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Party is who holds a lock or waits for one.
type Party struct {
	// Name is for people: a workflow ID if it is a workflow's of the namespace that is looked at, and
	// else the owner.
	Name string `json:"name"`
	// Workflow and Namespace, an ID, are a workflow's. Step is set if the lock is that of a single
	// step.
	Workflow  string `json:"workflow,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Step      string `json:"step,omitempty"`
	// Owner is as lockcore knows it. What one owner waits for it waits for with all that it holds.
	Owner string `json:"owner"`
}

// Maintenance is the lock ID of holds that operators take.
const Maintenance = "maintenance"

// PartyOf is who stands behind an entry.
func (s *Site) PartyOf(st *lockcore.Status) Party {
	p := Party{Owner: cmp.Or(st.Owner, st.LockID)}
	p.Name = p.Owner
	if st.LockID == Maintenance {
		p.Name = Maintenance
	}
	if st.Run == "" { // plain Go names its parties as it likes
		return p
	}
	if of, step, err := wire.ParseLockID(st.LockID); err == nil {
		p.Workflow, p.Namespace, p.Step = of.WorkflowID, of.Namespace, step
		p.Owner = cmp.Or(st.Owner, of.Owner())
		p.Name = s.OwnerName(of.Owner())
	}
	return p
}

// OwnerName is an owner's name for people: the workflow ID if it is a workflow of the site's
// namespace, or where that is not known of any, and else the owner.
func (s *Site) OwnerName(owner string) string {
	of, _, err := wire.ParseLockID(owner)
	id := s.Temporal.NamespaceID
	if err == nil && (of.Namespace == id || id == "" && wire.IsNamespaceID(of.Namespace)) {
		return of.WorkflowID
	}
	return owner
}
