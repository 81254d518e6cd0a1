package contention

import (
	"fmt"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

func timeOf(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func nanosecondsOf(s float64) int64 { return int64(s*1e9 + 0.5) }

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

func duration(ns int64) string { return Seconds(seconds(ns)) }

// Seconds formats a duration in seconds for people, with two significant digits or more.
func Seconds(s float64) string {
	switch {
	case s <= 0:
		return "0 s"
	case s < 0.000_999_5:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 0.009_95:
		return fmt.Sprintf("%.1f ms", s*1e3)
	case s < 0.999_5:
		return fmt.Sprintf("%.0f ms", s*1e3)
	case s < 99.95:
		return fmt.Sprintf("%.1f s", s)
	case s < 5999.5:
		return fmt.Sprintf("%dm%02ds", int(s+0.5)/60, int(s+0.5)%60)
	}
	return fmt.Sprintf("%dh%02dm", int(s+30)/3600, int(s+30)%3600/60)
}

func percent(share float64) string {
	switch p := 100 * share; {
	case p > 99 && p < 100:
		return "over 99 %"
	case p > 0 && p < 1:
		return "under 1 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", thousands(n), what)
}

// thousands separates the thousands of a number by commas.
func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// shortCycle removes the namespace IDs from the text of a cycle.
func shortCycle(cycle string) string {
	clauses := strings.Split(cycle, ", ")
	for i, clause := range clauses {
		if owner, rest, ok := strings.Cut(clause, " waits for "); ok {
			on := strings.LastIndex(rest, " on ")
			if on < 0 {
				on = len(rest)
			}
			clauses[i] = short(owner) + " waits for " + short(rest[:on]) + rest[on:]
		}
	}
	return strings.Join(clauses, ", ")
}

// short removes the namespace ID with which Temporal's owners begin, and describes an activity without a workflow.
func short(owner string) string {
	if of, ok := wire.ParseStandalone(owner); ok {
		return of.String()
	}
	if namespace, name, ok := strings.Cut(owner, "/"); ok && wire.IsNamespaceID(namespace) && name != "" {
		return name
	}
	return owner
}
