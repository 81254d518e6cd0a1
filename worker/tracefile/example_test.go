package tracefile_test

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/worker/tracefile"
)

// A worker whose spans `lockstep contention traces/` reads. Without the interceptor, the report has no types of workflows.
func ExampleNewTracerProvider() {
	connect := func(ctx context.Context, db *mongo.Database, address string) (client.Client, error) {
		traces, err := tracefile.NewTracerProvider(ctx, "traces", tracefile.Options{}) // call traces.Shutdown before the process ends
		if err != nil {
			return nil, err
		}
		locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{TracerProvider: traces})
		if err != nil {
			return nil, err
		}
		tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: traces.Tracer("payments")})
		if err != nil {
			return nil, err
		}
		lockstep, err := worker.NewPlugin(worker.Options{Locker: locker})
		if err != nil {
			return nil, err
		}
		return client.DialContext(ctx, client.Options{
			HostPort: address, Plugins: []client.Plugin{lockstep}, Interceptors: []interceptor.ClientInterceptor{tracing},
		})
	}
	_ = connect
}
