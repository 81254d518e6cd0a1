package party

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Commit is what [Locker.Commit] verifies and then releases.
type Commit struct {
	// LockID is whose holds these are, and Run the run label, which is required.
	LockID string
	Run    string
	// TakeOver is the label that Run may replace; see [Request]. First fences stay.
	TakeOver string
	// Uses say what must be held. Defaults to nothing: the commit is a release.
	Uses []Use
	// Inherits says that holds may be missing which an earlier run of the party has released. Then a
	// hold is lost only if there is evidence, of this run, of Before, or of a run that is known to
	// have replaced one of them or to have been replaced by one. Defaults to false: a hold that is missing is lost.
	Inherits bool
	// Before are labels of earlier runs whose losses are this one's.
	Before []string
	// Resources are released, up to Order: any number of names. Each commit of a run has another
	// Order.
	Resources []string
	Order     Order
}

// Use says that the party has used a resource, and must hold it since.
type Use struct {
	Resource string
	// By is an order: a request of that order or an earlier one must have entered the hold.
	By Order
}

// Commit makes sure by a majority write to each resource that the party holds what it used, and
// then releases. If something is lost it releases nothing, and returns the *LostErrors, joined. If
// another run holds, the answer is an *OtherRunError, and nothing is released. Other errors are
// those of [Locker.Release].
//
// One resource is verified and released by one write; several by two writes each, since nothing is
// released before all are known to be held.
//
// A commit may be repeated after an unknown outcome, as often as needed, until 64 others have
// committed there. One that has begun to release is known by that: its repetition verifies nothing
// and releases the rest.
func (l *Locker) Commit(ctx context.Context, c Commit) error {
	if err := c.check(); err != nil {
		return err
	}
	if done, err := l.commitOne(ctx, &c); done {
		return err
	}
	decided, err := l.verify(ctx, &c)
	if err != nil && !decided {
		return err
	}
	var errs []error
	for names := range slices.Chunk(c.Resources, maxResources) {
		errs = append(errs, l.Release(ctx, Release{LockID: c.LockID, Run: c.Run, Resources: names, Order: c.Order}))
	}
	return errors.Join(errs...)
}

// commitOne commits by one write if there is one resource, and reports whether that is all: the hold
// is there, or the database could not be asked. Else its absence has to be explained.
func (l *Locker) commitOne(ctx context.Context, c *Commit) (done bool, err error) {
	if len(c.Uses) != 1 || c.Uses[0].By == (Order{}) || len(c.Resources) != 1 || c.Resources[0] != c.Uses[0].Resource || c.TakeOver != "" {
		return false, nil
	}
	a, err := l.release(ctx, rules.Release{
		Policy: l.cfg.policy(), Resource: c.Resources[0], LockID: c.LockID, Label: c.Run, Order: c.Order.number(), Used: c.Uses[0].By.number(),
	}, ending{})
	return err != nil || a.Outcome == rules.Granted, err
}

func (c *Commit) check() error {
	checks := []error{
		checkText("Commit.LockID", c.LockID, 1, maxLockID), checkText("Commit.Run", c.Run, 1, maxName), checkText("Commit.TakeOver", c.TakeOver, 0, maxName),
		checkRange("Commit.Order.Schedule", int(c.Order.Schedule), 0, math.MaxInt32),
	}
	for i, u := range c.Uses {
		checks = append(checks, checkText(fmt.Sprintf("Commit.Uses[%d].Resource", i), u.Resource, 1, maxName))
	}
	return firstError(append(checks, checkNames("Commit.Resources", c.Resources, ""))...)
}

// verify returns what is lost, and whether the commit has begun to release.
func (l *Locker) verify(ctx context.Context, c *Commit) (decided bool, err error) {
	docs, errs := make([]*rules.Document, len(c.Uses)), make([]error, len(c.Uses))
	inParallel(len(c.Uses), func(i int) {
		docs[i], errs[i] = l.verifyHold(ctx, rules.Verify{
			Resource: c.Uses[i].Resource, LockID: c.LockID, Label: c.Run, TakeOver: c.TakeOver, Used: c.Uses[i].By.number(),
		})
		if errs[i] == nil {
			errs[i] = c.lost(docs[i], c.Uses[i])
		}
	})
	for _, d := range docs {
		decided = decided || (d != nil && d.ReleasedUpTo(c.LockID, c.Run, c.Order.number()))
	}
	for i := range docs {
		if errors.Is(errs[i], ErrLost) && !decided { // else it was released by this commit
			l.tel.lost(ctx, c.Uses[i].Resource)
		}
	}
	return decided, errors.Join(errs...)
}

// lost returns the loss if the party does not hold what it used.
func (c *Commit) lost(d *rules.Document, use Use) error {
	if d.Keeps(c.LockID, c.Run, use.By.number()) {
		return nil
	}
	var labels []string
	for _, label := range append([]string{c.Run}, c.Before...) {
		labels = append(labels, d.Replaced(c.LockID, label)...)
	}
	e, known := lossIn(d, c.LockID, use.By.number(), "it does not hold what it used: "+
		"a worker without Lockstep ran the step, or what became of the hold is not known any longer", labels...)
	if !known && c.Inherits {
		return nil
	}
	return e
}

// Replaced are the labels of the runs that a run of a party is known to have replaced on resources, or that replaced it, by one taking
// over from the other. The error is the database's.
func (l *Locker) Replaced(ctx context.Context, lockID, run string, resources ...string) ([]string, error) {
	docs, err := l.look(ctx, resources...)
	if err != nil {
		return nil, failure("read", "", Order{}, err, false)
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		for _, label := range docs[name].Replaced(lockID, run) {
			if label != run && !slices.Contains(labels, label) {
				labels = append(labels, label)
			}
		}
	}
	return labels, nil
}
