package telemetry

// Metric is an instrument.
type Metric struct {
	Name string
	// Kind is "counter" or "histogram", and Unit in the notation of UCUM.
	Kind, Unit string
	// Help is the description that backends show.
	Help string
	// When it is recorded, for docs/telemetry.md.
	When string
	// Attributes are its keys.
	Attributes []string
	// Buckets are the upper bounds of a histogram's, in the unit.
	Buckets []float64
}

// seconds suit what takes from a round trip to a saga's time.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// Keys of the attributes of metrics, in addition to Mode and Outcome.
const (
	// Class is the result of Config.ResourceClass for the resource's name; absent if that is not set.
	Class = "lock.resource.class"
	// Operation is the name of the command's span without its "lock.".
	Operation = "lock.operation"
)

// The metrics.
var (
	WaitDuration = Metric{
		Name: "lock.wait.duration", Kind: "histogram", Unit: "s",
		Help:       "Time requests waited in the queue, by the database server's clock",
		When:       "when a wait ends, with the span lock.wait",
		Attributes: []string{Mode, Outcome, Class}, Buckets: seconds,
	}
	HoldDuration = Metric{
		Name: "lock.hold.duration", Kind: "histogram", Unit: "s",
		Help:       "Time locks were held, by the database server's clock",
		When:       "when a hold ends, with the span lock.hold, by the process that ends it",
		Attributes: []string{Mode, Outcome, Class}, Buckets: seconds,
	}
	QueueLength = Metric{
		Name: "lock.queue.length", Kind: "histogram", Unit: "{request}",
		Help:       "Number of waiters when a request queued, including itself",
		When:       "when a request queues, once per wait",
		Attributes: []string{Class}, Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000},
	}
	Granted = Metric{
		Name: "lock.granted", Kind: "counter", Unit: "{grant}",
		Help:       "Requests that got their lock, at once or after a wait",
		When:       "when an acquire returns a lease; a repetition counts only after a lost answer",
		Attributes: []string{Mode, Outcome, Class},
	}
	Contended = Metric{
		Name: "lock.contended", Kind: "counter", Unit: "{request}",
		Help:       "Requests that found the resource busy",
		When:       "when a request queues, once per wait, or is refused because the resource is busy or its queue full",
		Attributes: []string{Mode, Outcome, Class},
	}
	Lost = Metric{
		Name: "lock.lost", Kind: "counter", Unit: "{lease}",
		Help:       "Leases that were lost, or given up because they could not be renewed in time",
		When:       "when an acquire, a renewal, a session or the release after a commit notices it; a step under several locks may count once for each",
		Attributes: []string{Class},
	}
	Expired = Metric{
		Name: "lock.expired", Kind: "counter", Unit: "{hold}",
		Help:       "Expired holds that were evicted",
		When:       "when another request is granted the resource",
		Attributes: []string{Class},
	}
	Deadlocks = Metric{
		Name: "lock.deadlocks", Kind: "counter", Unit: "{deadlock}",
		Help:       "Deadlocks that were ended by removing a request from a queue",
		When:       "by the process that removed it",
		Attributes: []string{Class},
	}
	OperationDuration = Metric{
		Name: "lock.operation.duration", Kind: "histogram", Unit: "s",
		Help:       "Duration of commands, including repetitions after lost answers",
		When:       "with each answer, by the process's clock",
		Attributes: []string{Operation, Outcome}, Buckets: seconds,
	}
)

// Metrics are all of them.
var Metrics = []Metric{
	WaitDuration, HoldDuration, QueueLength, Granted, Contended, Lost, Expired, Deadlocks, OperationDuration,
}
