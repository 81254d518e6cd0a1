package worker_test

import (
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// A plugin on the client installs Lockstep in every worker made from it.
func ExampleNewPlugin() {
	run := func() error {
		db, err := mongo.Connect(options.Client().ApplyURI("mongodb://localhost:27017"))
		if err != nil {
			return err
		}
		locker, err := lockcore.New(db.Database("payments").Collection("locks"), lockcore.Config{})
		if err != nil {
			return err
		}
		plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
		if err != nil {
			return err
		}
		c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
		if err != nil {
			return err
		}
		defer c.Close()
		w := sdkworker.New(c, "payments", sdkworker.Options{})
		return w.Run(sdkworker.InterruptCh())
	}
	_ = run
}

// A worker without plugins takes the interceptor and the activities one by one.
func ExampleRegister() {
	run := func(c client.Client, locker *lockcore.Locker) error {
		o := worker.Options{Locker: locker}
		own, err := worker.Interceptor(o)
		if err != nil {
			return err
		}
		w := sdkworker.New(c, "payments", sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{own}})
		if err := worker.Register(w, o); err != nil {
			return err
		}
		return w.Run(sdkworker.InterruptCh())
	}
	_ = run
}
