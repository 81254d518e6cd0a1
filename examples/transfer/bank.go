package transfer

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/temporal"
)

// Account is a document of the accounts collection.
type Account struct {
	ID string `bson:"_id"`
	// Balance is in cents.
	Balance int64 `bson:"balance"`
	// Applied names the latest applied steps, so that a repeated step is applied once. It is written together with the
	// balance.
	Applied []string `bson:"applied"`
}

// remembered bounds Applied. A step is repeated within minutes, and an account has fewer transfers in that time.
const remembered = 1000

// Failure types of steps that fail for a reason that trying again does not change.
const (
	FailureCheck = "transfer.CheckFailed"
	FailureFunds = "transfer.InsufficientFunds"
)

// Bank has the activities.
type Bank struct {
	// Accounts is the collection.
	Accounts *mongo.Collection
	// Pause is the time of a step between reading and writing, and of an auditor between two accounts.
	Pause time.Duration
	// Seed decides which transfers fail their check.
	Seed int64
	// FailPercent is their share.
	FailPercent int
}

// AccountID names the account with number n, both in the collection and as a lock's resource.
func AccountID(n int) string { return fmt.Sprintf("account/%d", n) }

// OpenAccounts makes n accounts with the same balance.
func OpenAccounts(ctx context.Context, coll *mongo.Collection, n int, balance int64) error {
	accounts := make([]Account, n)
	for i := range accounts {
		accounts[i] = Account{ID: AccountID(i), Balance: balance, Applied: []string{}}
	}
	_, err := coll.InsertMany(ctx, accounts)
	return err
}

// Debit takes the amount from the one account.
func (b *Bank) Debit(ctx context.Context, t Transfer) error {
	return b.apply(ctx, t.From, t.ID+"/debit", func(balance int64) (int64, error) {
		if balance < t.Amount {
			return 0, temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("%s has %d cents, and %d are wanted", t.From, balance, t.Amount), FailureFunds, nil)
		}
		return balance - t.Amount, nil
	})
}

// Credit gives the amount to the other account.
func (b *Bank) Credit(ctx context.Context, t Transfer) error {
	return b.apply(ctx, t.To, t.ID+"/credit", func(balance int64) (int64, error) { return balance + t.Amount, nil })
}

// UndoDebit returns the amount, if Debit has taken it, and prevents a Debit in progress from being applied later.
func (b *Bank) UndoDebit(ctx context.Context, t Transfer) error {
	return b.undo(ctx, t.From, t.ID+"/debit", t.Amount)
}

// UndoCredit takes the amount back, likewise.
func (b *Bank) UndoCredit(ctx context.Context, t Transfer) error {
	return b.undo(ctx, t.To, t.ID+"/credit", -t.Amount)
}

// Check fails for some transfers. A seed always selects the same ones.
func (b *Bank) Check(_ context.Context, t Transfer) error {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d/%s", b.Seed, t.Key) // a hash never fails
	if int(h.Sum32()%100) < b.FailPercent {
		return temporal.NewNonRetryableApplicationError("the check says no to "+t.ID, FailureCheck, nil)
	}
	return nil
}

// Total reads the accounts one by one and adds them up.
func (b *Bank) Total(ctx context.Context, accounts []string) (int64, error) {
	var total int64
	for _, id := range accounts {
		account, err := b.read(ctx, id)
		if err != nil {
			return 0, err
		}
		total += account.Balance
		if err := pause(ctx, b.Pause); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// apply changes a balance, unless the step was applied or undone before.
func (b *Bank) apply(ctx context.Context, id, step string, change func(int64) (int64, error)) error {
	account, err := b.read(ctx, id)
	if err != nil {
		return err
	}
	if slices.Contains(account.Applied, step) || slices.Contains(account.Applied, undone(step)) {
		return nil
	}
	if account.Balance, err = change(account.Balance); err != nil {
		return err
	}
	account.Applied = append(account.Applied, step)
	return b.write(ctx, account)
}

func (b *Bank) undo(ctx context.Context, id, step string, amount int64) error {
	account, err := b.read(ctx, id)
	if err != nil {
		return err
	}
	if slices.Contains(account.Applied, undone(step)) {
		return nil
	}
	if slices.Contains(account.Applied, step) {
		account.Balance += amount
	}
	account.Applied = append(account.Applied, undone(step))
	return b.write(ctx, account)
}

func undone(step string) string { return step + "/undone" }

func (b *Bank) read(ctx context.Context, id string) (account Account, err error) {
	if err := b.Accounts.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&account); err != nil {
		return account, fmt.Errorf("read %s: %w", id, err)
	}
	return account, nil
}

// write stores a result that was computed from an earlier read: without a lock, an update in between gets lost. The pause
// simulates the computation. If the lock is lost during the pause, ctx is cancelled and nothing is written. A process that
// stalls right here for longer than its lease can still write; careful code would make the write conditional on the fence.
func (b *Bank) write(ctx context.Context, account Account) error {
	if err := pause(ctx, b.Pause); err != nil {
		return err
	}
	account.Applied = account.Applied[max(0, len(account.Applied)-remembered):]
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "balance", Value: account.Balance}, {Key: "applied", Value: account.Applied}}}}
	if _, err := b.Accounts.UpdateByID(ctx, account.ID, set); err != nil {
		return fmt.Errorf("write %s: %w", account.ID, err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
