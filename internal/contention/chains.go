package contention

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

const (
	maxChains = 100
	maxLinks  = 16
	// maxTried bounds how many waits of one owner are looked at.
	maxTried = 64
)

// chains are who waited for whom who waited for whom. Chains of three and more come first, and within them the one whose first waited
// longest. Of those who waited for the same hold only the one that waited longest is told of, and no chain is a part of another.
func (a *analysis) chains() []Chain {
	order := make([]int32, 0, len(a.waits))
	for i := range a.waits {
		w := &a.waits[i]
		if len(w.Blockers) > 0 && a.chosenWait(w) {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(a.waits[y].length(), a.waits[x].length()) })
	var long, short []Chain
	usedHolds, usedWaits := map[int]bool{}, map[int]bool{}
	for _, least := range []int{3, 2} {
		for _, i := range order {
			if len(long)+len(short) == maxChains {
				break
			}
			links := a.links(int(i))
			if len(links) < least || usedWaits[int(i)] || links[1].Hold >= 0 && usedHolds[links[1].Hold] {
				continue
			}
			for _, l := range links {
				usedWaits[l.Wait], usedHolds[l.Hold] = true, true
			}
			c := Chain{Links: links, Total: seconds(a.waits[i].length()), Text: a.chainText(links)}
			if least == 3 {
				long = append(long, c)
			} else {
				short = append(short, c)
			}
		}
	}
	return append(long, short...)
}

// links follow a wait to its blocker, to what that one waited for meanwhile, and so on. A cycle is cut where it closes.
func (a *analysis) links(first int) []ChainLink {
	w := &a.waits[first]
	links := []ChainLink{{Owner: w.Owner, Resource: w.Resource, Waited: seconds(w.length()), Step: w.Step, Wait: first, Hold: -1}}
	visited := map[sym]bool{w.owner: true}
	for next := first; next >= 0 && len(links) < maxLinks; {
		w := &a.waits[next]
		b, then := a.mainBlocker(w)
		if b == nil {
			break
		}
		l := ChainLink{Owner: b.Owner, Step: b.Step, Wait: -1, Hold: b.Hold}
		var owner sym
		if b.Hold >= 0 {
			owner = a.holds[b.Hold].owner
		}
		if owner != 0 && visited[owner] {
			break
		}
		visited[owner] = true
		if then >= 0 {
			t := &a.waits[then]
			l.Resource, l.Waited, l.Wait = t.Resource, seconds(t.length()), then
		}
		links = append(links, l)
		next = then
	}
	return links
}

// mainBlocker is the one that was longest in a wait's way; one whose owner waited itself meanwhile goes before one whose owner did not. It
// returns that owner's wait too, or -1.
func (a *analysis) mainBlocker(w *wait) (main *Blocker, then int) {
	then = -1
	var longest, longestThen int64 = -1, 0
	for i := range w.Blockers {
		b := &w.Blockers[i]
		at := interval{w.from + nanosecondsOf(b.From), w.from + nanosecondsOf(b.To)}
		if b.Hold >= 0 {
			if n, shared := a.waitDuring(a.byOwner[a.holds[b.Hold].owner], at); shared > longestThen {
				main, then, longestThen = b, n, shared
				continue
			}
		}
		if then < 0 && at.length() > longest {
			main, longest = b, at.length()
		}
	}
	return main, then
}

// waitDuring is, of waits in the order of their starts, the one that lasted longest within a time, and for how long; -1 where none did.
func (a *analysis) waitDuring(waits []int32, at interval) (found int, most int64) {
	found = -1
	begun := sort.Search(len(waits), func(i int) bool { return a.waits[waits[i]].from >= at.to })
	for i := begun - 1; i >= 0 && i >= begun-maxTried; i-- {
		if n := a.waits[waits[i]].with(at).length(); n > most {
			found, most = int(waits[i]), n
		}
	}
	return found, most
}

// chainText tells a chain in a sentence.
func (a *analysis) chainText(links []ChainLink) string {
	var b strings.Builder
	b.WriteString(links[0].Owner)
	for i, l := range links {
		if i > 0 {
			b.WriteString(", which")
		}
		switch {
		case i < len(links)-1:
			b.WriteString(a.waitText(l, links[i+1]))
		case i > 0:
			b.WriteString(a.ending(l))
		}
	}
	return b.String()
}

// waitText says that one of a chain waited for the next, and how much of the wait that was, where others were in the way too.
func (a *analysis) waitText(l, next ChainLink) string {
	for i := range a.waits[l.Wait].Blockers {
		b := &a.waits[l.Wait].Blockers[i]
		if b.Hold == next.Hold && b.Owner == next.Owner && b.Hold >= 0 && b.To-b.From < 0.9*l.Waited {
			return fmt.Sprintf(" waited %s on %s, of which %s for %s", Seconds(l.Waited), l.Resource, Seconds(b.To-b.From), next.Owner)
		}
	}
	return fmt.Sprintf(" waited %s for %s on %s", Seconds(l.Waited), next.Owner, l.Resource)
}

// ending is what the last of a chain did.
func (a *analysis) ending(l ChainLink) string {
	switch {
	case l.Wait >= 0: // for one who stands in the chain already
		return fmt.Sprintf(" waited itself %s on %s", Seconds(l.Waited), l.Resource)
	case l.Hold < 0:
		return " held it"
	}
	h := &a.holds[l.Hold]
	did := " held it"
	switch {
	case l.Step != "":
		did = " was in step " + l.Step
	case len(h.Steps) > 0:
		did = " was between its steps"
	}
	if h.Outcome == telemetry.OutcomeExpired {
		did += " until it expired"
	}
	return did
}

func nanosecondsOf(s float64) int64 { return int64(s*1e9 + 0.5) }
