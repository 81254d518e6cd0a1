package currentrun

import (
	"reflect"

	"go.temporal.io/sdk/client"
)

// Connects tells a client from those of the SDK's test environments: one that is nil, and one of a mock that ends the process
// when it is called. No waiter is woken there, and nothing outlives what waits for it: the environment skips the time in which
// only timers run.
func Connects(c client.Client) bool {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return false
	}
	service := reflect.TypeOf(c.WorkflowService())
	if service == nil {
		return false
	}
	_, mocked := service.MethodByName("EXPECT")
	return !mocked
}
