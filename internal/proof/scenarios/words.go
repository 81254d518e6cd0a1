package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// fencesOf returns the fence of an entry, with its first and least ones if they differ.
func (p *player) fencesOf(e *rules.Entry) string {
	text, more := "fence "+p.number(e.Fence), ""
	if e.FirstFence != e.Fence || e.LeastFence != e.FirstFence {
		more = "first " + p.number(e.FirstFence)
	}
	if e.LeastFence != e.FirstFence {
		more += ", least " + p.number(e.LeastFence)
	}
	if more != "" {
		text += " (" + more + ")"
	}
	return text
}

// number returns the number of a fence.
func (p *player) number(fence int64) string {
	if i := slices.Index(p.fences, fence); i >= 0 {
		return fmt.Sprint(i + 1)
	}
	return "unknown"
}

// partName names an entry by its lock ID and its part.
func partName(e *rules.Entry) string {
	if e.State == rules.StateKept {
		return name(e.LockID) + " kept"
	}
	return name(e.LockID) + " " + name(e.Part)
}

// origin describes the hold whose end made a grant possible.
func (p *player) origin(e *rules.Entry) string {
	o := e.Predecessor
	if o == nil {
		return ""
	}
	text := fmt.Sprintf(" after %s fence %s", name(o.LockID), p.number(o.Fence))
	text += option("owner", o.Owner)
	if o.Trace != "trace" {
		text += " trace=" + name(o.Trace)
	}
	return text
}

// evidence describes a record of evidence.
func (p *player) evidence(e *rules.Evidence) string {
	text := fmt.Sprintf("#%d %s%s", e.Number, name(e.LockID), option("run", e.Run))
	if e.To != "" {
		return fmt.Sprintf("%s taken over by run %s", text, e.To)
	}
	return fmt.Sprintf("%s%s fence %s%s, %s %s", text, order(e.Order), p.number(e.Fence), option("member", strings.TrimPrefix(e.Member, p.base+"/")),
		cause(e.By, e.Reason), ago(&e.At, p.last.At))
}

// cause describes why a hold was lost.
func cause(by, reason string) string {
	if reason != "" {
		return "released by force " + strconv.Quote(reason)
	}
	return "evicted by " + name(by)
}

// shorten returns the first and the last texts of a long list.
func shorten(all []string) []string {
	const most, each = 10, 2
	if len(all) <= most {
		return all
	}
	return slices.Concat(all[:each], []string{fmt.Sprintf("%d more", len(all)-2*each)}, all[len(all)-each:])
}

// distinct returns each text once, with the number of times that it occurs more often.
func distinct(all []string) (out []string) {
	counts := map[string]int{}
	for _, text := range all {
		if counts[text]++; counts[text] == 1 {
			out = append(out, text)
		}
	}
	for i, text := range out {
		if n := counts[text]; n > 1 {
			out[i] = fmt.Sprintf("%s (%d entries)", text, n)
		}
	}
	return out
}

// name returns a text as it is, or quoted if it is not a plain word.
func name(text string) string {
	if text == "" {
		return "-"
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\$={}`, r) }) {
		return strconv.Quote(text)
	}
	return text
}

// option returns an option with a value, unless the value is empty.
func option(key, value string) string {
	if value == "" {
		return ""
	}
	return " " + key + "=" + name(value)
}

// order returns an order, unless it is 1.
func order(n int64) string {
	if n == 1 {
		return ""
	}
	return " order=" + orderName(n)
}

// orderName returns an order as text, or "plain" for the order of plain requests.
func orderName(n int64) string {
	if n == rules.LastPlain {
		return "plain"
	}
	return strconv.FormatInt(n, 10)
}

// mode describes a mode with its limit and the member of a pool. Members are named without the name of the resource.
func (p *player) mode(m string, limit int64, member string) string {
	text := map[string]string{rules.Exclusive: "exclusive", rules.Shared: "shared", rules.Pool: "pool"}[m]
	if limit > 0 {
		text += fmt.Sprintf(" limit=%d", limit)
	}
	return text + option("member", strings.TrimPrefix(member, p.base+"/"))
}

// left describes the time until an end.
func left(end, now time.Time) string {
	switch d := end.Sub(now); {
	case !end.Before(rules.Never):
		return "without an end"
	case d <= 0:
		return "expired"
	default:
		return span(d) + " left"
	}
}

func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	if d := now.Sub(*t); d > time.Minute/2 {
		return span(d) + " ago"
	}
	return "just now"
}

// span rounds a time, because the clock of a database runs while a scenario is played.
func span(d time.Duration) string {
	if d < time.Minute-time.Second {
		return d.Round(15 * time.Second).String()
	}
	d = d.Round(time.Minute)
	hours, minutes := d/time.Hour, d%time.Hour/time.Minute
	switch {
	case hours < 3:
		return fmt.Sprintf("%dm", d/time.Minute)
	case minutes == 0:
		return fmt.Sprintf("%dh", hours)
	}
	return fmt.Sprintf("%dh%dm", hours, minutes)
}
