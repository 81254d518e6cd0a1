package main

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// App is an app to test.
type App struct {
	Name string
	// Crashes makes its test fail.
	Crashes bool
}

// Use is a step that ran on a phone.
type Use struct {
	App   string
	Step  string
	Fence int64
}

// Phone is the document of a phone. Uses lists the steps that ran on it, in the order in which the database has added them.
type Phone struct {
	Name string `bson:"_id"`
	Uses []Use
}

// Lab has the activities.
type Lab struct {
	Phones *mongo.Collection
	// Testing is called during each test.
	Testing func(app App, phone string)
}

// TestApp books any free phone, installs an app there, tests it, and collects the report. All three steps use the same phone. If one
// of them fails, that phone is wiped. The phone is free again when the saga has ended.
func TestApp(ctx workflow.Context, app App) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
		ctx = workflows.Guard(ctx, lockcore.Pool("phones"))
		var lab *Lab
		if err := s.Step(ctx, lab.Install, lab.Wipe, app).Get(ctx, nil); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, lab.Test, app).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, lab.Report, app).Get(ctx, nil)
	})
}

// Install installs an app on the workflow's phone.
func (l *Lab) Install(ctx context.Context, app App) error {
	_, err := l.use(ctx, app, "install")
	return err
}

// Test runs the app.
func (l *Lab) Test(ctx context.Context, app App) error {
	phone, err := l.use(ctx, app, "test")
	if err != nil {
		return err
	}
	if l.Testing != nil {
		l.Testing(app, phone)
	}
	if app.Crashes {
		return temporal.NewNonRetryableApplicationError(app.Name+" has crashed on "+phone, failureCrashed, nil)
	}
	return nil
}

// Report collects what the test has found, and removes the app.
func (l *Lab) Report(ctx context.Context, app App) error {
	_, err := l.use(ctx, app, "report")
	return err
}

// Wipe undoes Install.
func (l *Lab) Wipe(ctx context.Context, app App) error {
	_, err := l.use(ctx, app, "wipe")
	return err
}

const failureCrashed = "Crashed"

// use records a step on the phone that the running step holds. The fences of a pool grow with each grant of any member, so they
// order the uses of each phone: a step whose phone was given to another workflow in the meantime is refused.
func (l *Lab) use(ctx context.Context, app App, step string) (phone string, err error) {
	phone, ok := activities.Member(ctx, "phones")
	if !ok {
		return "", errors.New("the step holds no phone: is the plugin installed on this worker?")
	}
	lease := activities.Leases(ctx)[0]
	return phone, lockcore.UpdateFenced(ctx, l.Phones, lease, bson.D{{Key: "_id", Value: phone}}, bson.D{{Key: "$push", Value: bson.D{
		{Key: "uses", Value: Use{App: app.Name, Step: step, Fence: lease.Fence}},
	}}})
}
