package main

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// Bank has the activities. An activity may run twice, so accounts record the payments that they have seen.
type Bank struct {
	Accounts *mongo.Collection
}

type account struct {
	Name  string   `bson:"_id"`
	Cents int64    `bson:"cents"`
	Seen  []string `bson:"seen"`
}

// Open opens accounts with 10.00 each, and replaces existing ones.
func (b *Bank) Open(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := b.Accounts.DeleteOne(ctx, bson.D{{Key: "_id", Value: name}}); err != nil {
			return err
		}
		if _, err := b.Accounts.InsertOne(ctx, account{Name: name, Cents: 1000}); err != nil {
			return err
		}
	}
	return nil
}

// Balances returns the balances of all accounts.
func (b *Bank) Balances(ctx context.Context) (map[string]int64, error) {
	found, err := b.Accounts.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var all []account
	if err := found.All(ctx, &all); err != nil {
		return nil, err
	}
	balances := map[string]int64{}
	for _, a := range all {
		balances[a.Name] = a.Cents
	}
	return balances, nil
}

// Debit takes the money from one account.
func (b *Bank) Debit(ctx context.Context, p Payment) error {
	return b.add(ctx, p.From, -p.Cents, p.key(ctx, "debit"))
}

// Refund undoes Debit, if it has debited.
func (b *Bank) Refund(ctx context.Context, p Payment) error {
	return b.undo(ctx, p.From, p.Cents, p.key(ctx, "debit"))
}

// Credit gives it to the other.
func (b *Bank) Credit(ctx context.Context, p Payment) error {
	return b.add(ctx, p.To, p.Cents, p.key(ctx, "credit"))
}

// TakeBack undoes Credit, if it has credited.
func (b *Bank) TakeBack(ctx context.Context, p Payment) error {
	return b.undo(ctx, p.To, -p.Cents, p.key(ctx, "credit"))
}

// Statement reads an account.
func (b *Bank) Statement(ctx context.Context, name string) (string, error) {
	of, err := b.read(ctx, name)
	return fmt.Sprintf("%s: %d", name, of.Cents), err
}

// Print prints a letter.
func (b *Bank) Print(_ context.Context, name string) error {
	if name == "" {
		return temporal.NewNonRetryableApplicationError("a letter to nobody", "payments.NoName", nil)
	}
	return nil
}

// key identifies a step of a payment. An ActivityID does not: a step that waited for its locks gets a new one.
func (p Payment) key(ctx context.Context, step string) string {
	return fmt.Sprintf("%s/%d/%s", activity.GetInfo(ctx).WorkflowExecution.ID, p.Attempt, step)
}

// undo adds cents, if the account has seen the step.
func (b *Bank) undo(ctx context.Context, name string, cents int64, step string) error {
	of, err := b.read(ctx, name)
	if err != nil || !slices.Contains(of.Seen, step) {
		return err
	}
	return b.add(ctx, name, cents, step+", undone")
}

func (b *Bank) add(ctx context.Context, name string, cents int64, step string) error {
	of, err := b.read(ctx, name)
	if err != nil || slices.Contains(of.Seen, step) {
		return err
	}
	of.Cents += cents
	of.Seen = append(of.Seen, step)
	_, err = b.Accounts.ReplaceOne(ctx, bson.D{{Key: "_id", Value: name}}, of)
	return err
}

func (b *Bank) read(ctx context.Context, name string) (a account, err error) {
	err = b.Accounts.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&a)
	return a, err
}
