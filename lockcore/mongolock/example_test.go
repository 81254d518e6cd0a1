package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

func Example() {
	ctx := context.Background()
	db, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		log.Fatal(err)
	}
	locks := mongolock.NewClient(db.Database("app").Collection("locks"))
	if err := locks.CreateIndexes(ctx); err != nil {
		log.Fatal(err)
	}

	const lockID = "import-2024-06-01"
	details := mongolock.LockDetails{Owner: "importer", Comment: "nightly import", TTL: 60}
	err = locks.XLock(ctx, "table/orders", lockID, details)
	if errors.Is(err, mongolock.ErrAlreadyLocked) {
		holders, err := locks.Status(ctx, mongolock.Filter{Resource: "table/orders"})
		fmt.Println("busy:", holders, err)
		return
	}
	if err != nil {
		log.Fatal(err) // it may have been taken: Unlock is safe
	}
	// At most four read the warehouse at a time.
	if err := locks.SLock(ctx, "warehouse", lockID, details, 4); err != nil {
		log.Print(err)
	}

	// Regularly during the work, for all locks of the lock ID:
	if _, err := locks.Renew(ctx, lockID, 60); errors.Is(err, mongolock.ErrLockNotFound) {
		log.Print("a lock is lost: stop")
	}

	unlocked, err := locks.Unlock(ctx, lockID)
	fmt.Println(len(unlocked), err)
}

func ExampleNewPurger() {
	var locks *mongolock.Client // as above
	purged, err := mongolock.NewPurger(locks).Purge(context.Background())
	for _, lock := range purged {
		fmt.Println(lock.Resource, "had been locked by", lock.LockId)
	}
	if err != nil {
		log.Print(err)
	}
}
