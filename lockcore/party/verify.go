package party

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Verify is the input of [Locker.Verify].
type Verify struct {
	// LockID is the lock ID of the holds, and Run the run label, which is required.
	LockID string
	Run    string
	// TakeOver is the label that Run may replace; see [Request]. First fences stay.
	TakeOver string
	// Uses lists what must be held. Defaults to nothing.
	Uses []Use
	// Inherits permits that holds are missing, because an earlier run of the party may have released
	// them. Then a hold is lost only if there is evidence, of this run, of Before, or of a run that is
	// known to have replaced one of them or to have been replaced by one. Defaults to false: a hold
	// that is missing is lost.
	Inherits bool
	// Before lists labels of earlier runs whose losses count as losses of this one.
	Before []string
}

// Use is the use of a resource by the party, which must have held the resource since.
type Use struct {
	Resource string
	// By is an order: a request of that order or an earlier one must have entered the hold.
	By Order
}

// Verify makes sure, by one majority write to each resource, that the party holds what it used. It
// renews these holds, and releases nothing. It may be repeated.
//
// What is lost is returned as *LostErrors, joined. If another run holds, the error is an
// *OtherRunError. Other errors are *InvalidError, and the database's.
func (l *Locker) Verify(ctx context.Context, v Verify) error {
	if err := v.check(); err != nil {
		return err
	}
	errs := make([]error, len(v.Uses))
	inParallel(len(v.Uses), func(i int) {
		use := v.Uses[i]
		d, err := l.verifyHold(ctx, rules.Verify{
			Resource: use.Resource, LockID: v.LockID, Label: v.Run, TakeOver: v.TakeOver, Used: use.By.number(),
		})
		if err == nil {
			err = v.lost(d, use)
		}
		if errors.Is(err, ErrLost) {
			l.tel.lost(ctx, use.Resource)
		}
		errs[i] = err
	})
	return errors.Join(errs...)
}

func (v *Verify) check() error {
	checks := []error{
		checkText("Verify.LockID", v.LockID, 1, maxLockID), checkText("Verify.Run", v.Run, 1, maxName), checkText("Verify.TakeOver", v.TakeOver, 0, maxName),
	}
	for i, u := range v.Uses {
		checks = append(checks, checkText(fmt.Sprintf("Verify.Uses[%d].Resource", i), u.Resource, 1, maxName))
	}
	return firstError(checks...)
}

// lost returns the loss if the party does not hold what it used.
func (v *Verify) lost(d *rules.Document, use Use) error {
	if d.Keeps(v.LockID, use.By.number()) {
		return nil
	}
	var labels []string
	for _, label := range append([]string{v.Run}, v.Before...) {
		labels = append(labels, d.Replaced(v.LockID, label)...)
	}
	e, known := lossIn(d, v.LockID, use.By.number(), "it does not hold what it used: "+
		"a worker without Lockstep ran the step, or what became of the hold is not known any longer", labels...)
	if !known && v.Inherits {
		return nil
	}
	return e
}

// Replaced returns the labels of the runs that a run of a party is known to have replaced on
// resources, or that replaced it, by one taking over from the other. The error is the database's.
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
