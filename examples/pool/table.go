package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// uses returns the phones with their uses.
func (p *process) uses(ctx context.Context) (found []Phone, err error) {
	cursor, err := p.db.Collection("phones").Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	return found, cursor.All(ctx, &found)
}

// booking is the time for which one workflow has one phone: uses without one of another workflow in between.
type booking struct {
	app, phone string
	fences     []string
	steps      []string
	first      int64
}

// bookings returns the bookings of a phone.
func (p *Phone) bookings() (out []*booking) {
	for _, use := range p.Uses {
		if len(out) == 0 || out[len(out)-1].app != use.App {
			out = append(out, &booking{app: use.App, phone: p.Name, first: use.Fence})
		}
		b := out[len(out)-1]
		b.steps = append(b.steps, use.Step)
		if fence := fmt.Sprint(use.Fence); !slices.Contains(b.fences, fence) {
			b.fences = append(b.fences, fence)
		}
	}
	return out
}

// printBookings prints the bookings in the order of their first fences.
func printBookings(out io.Writer, found []Phone, killed string) error {
	var all []*booking
	for i := range found {
		all = append(all, found[i].bookings()...)
	}
	slices.SortFunc(all, func(a, b *booking) int { return cmp.Compare(a.first, b.first) })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "workflow\tphone\tfences\tsteps\t") // Flush returns the error
	for _, b := range all {
		note := ""
		if b.app == killed {
			note = "its worker was killed"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", b.app, b.phone, strings.Join(b.fences, ", "), strings.Join(b.steps, ", "), note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d workflows on %d phones\n", len(all), len(found))
	return err
}

// check returns an error unless each phone was used, never by two workflows at once, each workflow had one phone in all its steps, and
// the broken phone was granted only after it came back: under greater fences than broughtBack.
func check(found []Phone, broughtBack int64, killed string) error {
	phoneOf := map[string]string{}
	for i := range found {
		p := &found[i]
		var last int64
		for _, use := range p.Uses {
			if use.Fence < last {
				return fmt.Errorf("%s: %s used it under fence %d after fence %d", p.Name, use.App, use.Fence, last)
			}
			last = use.Fence
		}
		if last == 0 {
			return fmt.Errorf("%s was never used", p.Name)
		}
		for _, b := range p.bookings() {
			switch other, twice := phoneOf[b.app]; {
			case twice && other == p.Name:
				return fmt.Errorf("%s was used by another workflow while %s had it", p.Name, b.app)
			case twice:
				return fmt.Errorf("%s used %s and %s", b.app, other, p.Name)
			case p.Name == broken && b.first <= broughtBack:
				return fmt.Errorf("%s was granted to %s under fence %d, while it was out of service", p.Name, b.app, b.first)
			}
			phoneOf[b.app] = p.Name
		}
		for _, b := range p.bookings() {
			if err := b.checkSteps(killed); err != nil {
				return err
			}
		}
	}
	if len(phoneOf) != apps {
		return fmt.Errorf("%d workflows had a phone, of %d", len(phoneOf), apps)
	}
	return nil
}

// checkSteps compares the steps with those of the workflow. Temporal may have repeated a step.
func (b *booking) checkSteps(killed string) error {
	switch steps := strings.Join(slices.Compact(slices.Clone(b.steps)), ", "); {
	case steps != "install, test, report" && steps != "install, test, wipe":
		return fmt.Errorf("%s ran these steps on %s: %s", b.app, b.phone, strings.Join(b.steps, ", "))
	case b.app == killed && (len(b.steps) < 4 || len(b.fences) < 2):
		return fmt.Errorf("the test of %s was not repeated under a later fence after its worker was killed", b.app)
	}
	return nil
}
