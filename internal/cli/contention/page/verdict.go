package page

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// verdict is the page's headline.
type verdict struct {
	// Name is the most waited-for resource, if there is one; with Claim it is a sentence. Why explains the waiting.
	Name, Claim, Why string
}

// judge names the bottleneck: a resource with more than half of all waiting.
func judge(r *contention.Report) verdict {
	if r.Read.LockSpans == 0 && len(r.Holds) == 0 && len(r.Waits) == 0 {
		return verdict{
			Claim: "No span of a lock was read.",
			Why:   fmt.Sprintf("%s were read, and %s in them.", count(r.Read.Files, "file"), count(r.Read.Spans, "span")),
		}
	}
	if len(r.Resources) == 0 || r.Resources[0].Wait.Total <= 0 {
		return verdict{Claim: "Nobody waited.", Why: fmt.Sprintf("%s, and none had to queue.", count(r.Totals.Acquisitions, "acquisition"))}
	}
	first := &r.Resources[0]
	share := 1.0
	if r.Totals.Wait.Total > 0 {
		share = min(1, first.Wait.Total/r.Totals.Wait.Total)
	}
	claim := fmt.Sprintf("is waited for most: %s of all waiting, so no single resource is the bottleneck.", percent(share))
	if share > 0.5 {
		claim = fmt.Sprintf("is the bottleneck: %s of all waiting.", percent(share))
	}
	return verdict{Name: first.Name, Claim: claim, Why: sentence(first.Why)}
}

// sentence adds a capital and a full stop.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	first, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(first)) + s[size:]
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return integer(n) + " " + what + "s"
}

// integer separates thousands by narrow spaces, which no language reads as a decimal point.
func integer(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "\u202f" + digits[at:]
	}
	return digits
}

// percent returns 0 % and 100 % only if they are exact, as assets/format.js does.
func percent(share float64) string {
	switch p := share * 100; {
	case p > 0 && p < 0.1:
		return "<\u00a00.1\u00a0%"
	case p > 99.9 && p < 100:
		return ">\u00a099.9\u00a0%"
	case p > 0 && p < 1, p > 99 && p < 100:
		return fmt.Sprintf("%.1f\u00a0%%", p)
	default:
		return fmt.Sprintf("%.0f\u00a0%%", p)
	}
}
