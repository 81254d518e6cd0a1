package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Values of Child.Broken. Each makes all clients wrong in one way.
const (
	brokenForever = "forever"  // takes locks without a TTL
	brokenLong    = "long"     // not wrong: holds for seconds, with a TTL that is longer than a restart
	brokenHeld    = "held"     // not wrong: holds for seconds
	brokenPermits = "permits"  // not wrong: the same, and only semaphores
	brokenUnknown = "unknown"  // takes an unknown outcome for the answer no, and an error of a release for a success
	brokenLate    = "late"     // counts its TTL from the answer instead of from the request
	brokenNoLimit = "no limit" // sends commands without a time limit
	brokenWall    = "wall"     // trusts its wall clock
	brokenExit    = "exit"     // ends after a few seconds
)

// control is a run in which something is wrong on purpose, with one kind of fault or none. The checks must find it.
type control struct {
	// kind is the kind of fault. If there is none, it only names the control.
	kind Kind
	what string
	// shows lists the checks of which one at least must find a violation.
	shows []string
	setup Setup
}

var errNotShown = errors.New("it shows no violation")

// controls returns one control for each kind of fault, and those without faults.
func controls() []control {
	each := func(f Fault, targets int, first, gap time.Duration) (plan []Fault) {
		for slot := range targets {
			f.Slot, f.At = slot, first+time.Duration(slot)*gap
			plan = append(plan, f)
		}
		return plan
	}
	server := func(f Fault, times ...time.Duration) (plan []Fault) {
		f.Slot = -1
		for _, at := range times {
			f.At = at
			plan = append(plan, f)
		}
		return plan
	}
	again := func(times int, gap time.Duration, faults []Fault) (plan []Fault) {
		for n := range times {
			for _, f := range faults {
				f.At += time.Duration(n) * gap
				plan = append(plan, f)
			}
		}
		return plan
	}
	const second = time.Second
	return append([]control{
		{kind: Kill, what: "locks without a TTL", shows: []string{"left locks"}, setup: Setup{
			Long: 8 * second, Broken: brokenForever, Gentle: true, NoSagas: true, Plan: each(Fault{Kind: Kill}, clients, second, second),
		}},
		{kind: Pause, what: "a register that does not check fences", shows: []string{"lost updates"}, setup: Setup{
			Long: 22 * second, Broken: brokenHeld, Unchecked: true, Plan: each(Fault{Kind: Pause, For: ttl + 4*second}, clients, second, 1700*time.Millisecond),
		}},
		{kind: DatabaseRestart, what: "a database that acknowledges before a write is durable", shows: []string{"trust", "isolation", "linearizability"}, setup: Setup{
			Long: 25 * second, Broken: brokenLong, Forgets: true, Plan: server(Fault{Kind: DatabaseRestart, Twice: true}, 4*second, 15*second),
		}},
		{kind: TemporalRestart, what: "sagas whose holds end during the outage, and whose last step does not ask for its lock", shows: []string{"isolation"}, setup: Setup{
			Long: 24 * second, BareSagas: true, Unchecked: true, Plan: server(Fault{Kind: TemporalRestart, For: ttl + 2*second}, 3*second, 13*second),
		}},
		// A cut that is longer than opTimeout leaves an outcome unknown if it meets a write. Half of the clients look on.
		{kind: Cut, what: "clients that take an unknown outcome for an answer", shows: []string{"linearizability"}, setup: Setup{
			Long: 30 * second, Broken: brokenUnknown, NoSagas: true, Plan: again(8, 3300*time.Millisecond, each(Fault{Kind: Cut, For: 2500 * time.Millisecond}, clients/2, second, 200*time.Millisecond)),
		}},
		{kind: Slow, what: "clients that count their TTL from the answer", shows: []string{"trust"}, setup: Setup{
			Long: 28 * second, Broken: brokenLate, NoSagas: true, Plan: each(Fault{Kind: Slow, For: 25 * second, Delay: 700 * time.Millisecond}, clients/2, second, 0),
		}},
		{kind: HalfOpen, what: "clients whose commands have no time limit", shows: []string{"recovery"}, setup: Setup{
			Long: 22 * second, Broken: brokenNoLimit, Plan: each(Fault{Kind: HalfOpen, For: second, Answers: true, Silent: true}, clients, second, 0),
		}},
		{kind: WrongClock, what: "clients that trust their wall clocks", shows: []string{"trust", "limits"}, setup: Setup{
			Long: 14 * second, Broken: brokenWall, Plan: each(Fault{Kind: WrongClock, Wall: -5 * time.Minute}, clients, 3*second, 700*time.Millisecond),
		}},
	}, withoutFaults()...)
}

// withoutFaults returns the controls of the checks that no fault needs.
func withoutFaults() []control {
	const second = time.Second
	return []control{
		{kind: "queue", what: "waiters that change places", shows: []string{"order"}, setup: Setup{Long: 20 * second, Broken: brokenHeld, NoSagas: true, Edits: backToFront}},
		{kind: "fences", what: "fences that go back", shows: []string{"fences"}, setup: Setup{Long: 15 * second, NoSagas: true, Edits: wrongFences}},
		// The seeds have a low limit and a high one, each for long.
		{kind: "limits", what: "an operator who sets greater limits than it logs", shows: []string{"limits"}, setup: Setup{Long: 30 * second, Broken: brokenPermits, NoSagas: true, Policies: limited(100)}},
		{kind: "waiters", what: "an operator who sets smaller limits than it logs", shows: []string{"waiters"}, setup: Setup{Seed: 9, Long: 30 * second, Broken: brokenPermits, NoSagas: true, Policies: limited(1)}},
		{kind: "audit", what: "an operator who does not give the reasons that it logs", shows: []string{"audit"}, setup: Setup{Long: 8 * second, NoSagas: true, Policies: anonymous}},
		{kind: "permits", what: "holders that vanish", shows: []string{"limits"}, setup: Setup{Long: 15 * second, Broken: brokenPermits, NoSagas: true, Edits: noPermits}},
		{kind: "losses", what: "an operator who ends holds by force", shows: []string{"losses"}, setup: Setup{Long: 15 * second, Broken: brokenHeld, NoSagas: true, Revokes: true}},
		{kind: "compensation", what: "a compensation that does nothing", shows: []string{"sagas"}, setup: Setup{Long: 15 * second, HalfUndone: true}},
		{kind: "exit", what: "clients that end", shows: []string{"crashes"}, setup: Setup{Long: 8 * second, NoSagas: true, Broken: brokenExit}},
	}
}

// runControls runs the controls, or some of them, and prints what each has shown.
func runControls(ctx context.Context, o settings, srv *servers, exe, work string) error {
	all := controls()
	if o.pick > 0 {
		r := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // it should be the same each time
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = slices.DeleteFunc(all, func(c control) bool { return !srv.can(c.kind) })
		all = all[:min(o.pick, len(all))]
	}
	var failed error
	var names []Kind
	ran := 0
	for _, c := range all {
		names = append(names, c.kind)
		if !srv.can(c.kind) || o.only != "" && o.only != string(c.kind) {
			continue // what the servers cannot do was printed
		}
		ran++
		if err := c.run(ctx, o, srv, exe, work); err != nil {
			err = fmt.Errorf("control %s: %w", c.kind, err)
			failed = errors.Join(failed, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no control was run: -only is %q; want one of %v", o.only, names)
	}
	if failed == nil && o.dir == "" {
		return os.RemoveAll(work)
	}
	return failed
}

// attempts bounds how often a control is run until it shows a violation. The defect is always there, but whether a fault meets it
// at the right moment is a matter of chance.
const attempts = 3

// run runs one control until it shows a violation.
func (c *control) run(ctx context.Context, o settings, srv *servers, exe, work string) (err error) {
	for attempt := 1; attempt <= attempts; attempt++ {
		err = c.attempt(ctx, o, srv, exe, filepath.Join(work, fmt.Sprintf("control-%s-%d", strings.ReplaceAll(string(c.kind), " ", "-"), attempt)))
		if !errors.Is(err, errNotShown) {
			return err
		}
		fmt.Printf("control %s: attempt %d of %d: %v\n", c.kind, attempt, attempts, err)
	}
	return err
}

// attempt runs one control once, with its logs in dir.
func (c *control) attempt(ctx context.Context, o settings, srv *servers, exe, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	began := time.Now()
	records, err := Play(ctx, c.setup, srv, exe, dir)
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, dir)
	}
	story := read(records)
	if o.verbose {
		story.printFaults()
	}
	violations := story.Check()
	counts := map[string]int{}
	shown := ""
	for _, v := range violations {
		counts[v.Check]++
		if shown == "" && slices.Contains(c.shows, v.Check) {
			shown = v.Check + ": " + describe(v.Text)
		}
	}
	sum := summarize(story, violations)
	if shown == "" || len(c.setup.Plan) > 0 && sum.acted[c.kind] == 0 {
		return fmt.Errorf("%s: %w; %d faults acted; found were %v; logs in %s", c.what, errNotShown, sum.acted[c.kind], counts, dir)
	}
	fmt.Printf("control %s: %s: %d faults acted; found %v in %.0f s: %s\n", c.kind, c.what, sum.acted[c.kind], counts, time.Since(began).Seconds(), shown)
	return nil
}
