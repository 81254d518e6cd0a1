package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Policies are the limits and the pools that operators have set.
type Policies struct {
	// List is sorted by name.
	List []lockcore.Policy `json:"policies"`
	// Priorities is set if priorities are in force, as from the first policy on.
	Priorities bool `json:"priorities,omitempty"`
	// Changes has the last 20 changes, the latest last. A policy that was removed has no limit and no members. One without a name that is
	// no prefix has only brought priorities into force.
	Changes []lockcore.Policy `json:"changes,omitempty"`
	// At is the server's time.
	At time.Time `json:"at"`
}

// Policies reads the policies. A discreet site returns neither the names of resources, nor reasons and changes.
func (s *Site) Policies(ctx context.Context) (p Policies, err error) {
	if p.List, err = s.Locker.Policies(ctx); err != nil {
		return Policies{}, err
	}
	slices.SortStableFunc(p.List, func(a, b lockcore.Policy) int { return cmp.Compare(a.Name, b.Name) })
	for i := range p.List {
		s.hide(&p.List[i])
	}
	p.At = time.Now()
	if s.Discreet || s.Collection == nil {
		return p, nil
	}
	identity, err := store.New(s.Collection).Identify(ctx)
	if err != nil {
		return Policies{}, err
	}
	p.At = identity.At
	if identity.Policies != nil {
		p.Priorities = true
		for i := range identity.Policies.Changes {
			p.Changes = append(p.Changes, changeOf(&identity.Policies.Changes[i]))
		}
	}
	return p, nil
}

// For returns the policy that applies to a resource, or nil. A discreet site does not know to which names a prefix applies.
func (p *Policies) For(resource string) *lockcore.Policy {
	ids := &rules.Policies{}
	for i := range p.List {
		one := rules.Policy{PolicyID: rules.PolicyID{Name: p.List[i].Name, Prefix: p.List[i].Prefix}}
		if until := p.List[i].Until; !until.IsZero() {
			one.Until = &until
		}
		ids.List = append(ids.List, one)
	}
	best := ids.For(resource, p.At)
	i := slices.IndexFunc(p.List, func(own lockcore.Policy) bool {
		return best != nil && best.PolicyID == rules.PolicyID{Name: own.Name, Prefix: own.Prefix}
	})
	if i < 0 {
		return nil
	}
	return &p.List[i]
}

func changeOf(c *rules.PolicyChange) lockcore.Policy {
	p := lockcore.Policy{Name: c.Name, Prefix: c.Prefix, By: c.By, Reason: c.Reason, At: c.At}
	if c.To == nil {
		return p
	}
	p.Limit = int(c.To.Limit)
	if c.To.Until != nil {
		p.Until = *c.To.Until
	}
	for _, m := range c.To.Members {
		if p.Members = append(p.Members, m.Name); m.Out {
			if p.Out == nil {
				p.Out = map[string]string{}
			}
			p.Out[m.Name] = m.Reason
		}
	}
	return p
}

// hide replaces the texts of a policy that a discreet site must not show.
func (s *Site) hide(p *lockcore.Policy) {
	if s.Discreet {
		p.Name, p.Reason = s.ResourceName(p.Name), ""
		s.hidePool(p)
	}
}

// Unreadable returns an error that names the policies that cannot be decoded, or nil.
func (p *Policies) Unreadable() error {
	var names []string
	for i := range p.List {
		if p.List[i].Unreadable {
			names = append(names, PolicyName(&p.List[i]))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be decoded: %s; until each is set again or removed, new requests with a limit, or for a member, are refused there", table.Count(len(names), "policy"), firstNames(names))
}

// PolicyName returns the name that a policy is for, or the prefix with a star, as plain text.
func PolicyName(p *lockcore.Policy) string {
	name := table.Plain(p.Name)
	switch {
	case isEnabling(p):
		return "priorities"
	case p.Prefix:
		return name + "*"
	case strings.HasSuffix(name, "*"):
		return name + " (exactly)"
	}
	return name
}

// isEnabling reports whether a change concerns no policy: it has brought priorities into force.
func isEnabling(p *lockcore.Policy) bool { return p.Name == "" && !p.Prefix }

// PolicyText describes what a policy sets.
func PolicyText(p *lockcore.Policy) string {
	switch {
	case p.Unreadable:
		return "cannot be decoded"
	case isEnabling(p):
		return "in force"
	case isPool(p):
		return fmt.Sprintf("pool of %d: %s", len(p.Members), membersText(p))
	case p.Limit == 0:
		return "removed"
	}
	text := fmt.Sprintf("limit %d", p.Limit)
	if !p.Until.IsZero() {
		text += " until " + timeText(p.Until)
	}
	return text
}

// Ended reports whether a policy has ended.
func (p *Policies) Ended(one lockcore.Policy) bool {
	return !one.Until.IsZero() && !one.Until.After(p.At)
}

// Print prints a line for each policy, and for each change.
func (p *Policies) Print(out io.Writer) error {
	if len(p.List) == 0 {
		if err := table.Fprintf(out, "no policy: the limits of requests are in force\n"); err != nil {
			return err
		}
	} else if err := table.Write(out, p.rows()...); err != nil {
		return err
	}
	if len(p.Changes) == 0 {
		return nil
	}
	if err := table.Fprintf(out, "\nlast changes:\n"); err != nil {
		return err
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		err := table.Fprintf(out, "  %s  %s: %s, by %s%s\n", timeText(c.At), PolicyName(c), PolicyText(c), cmp.Or(c.By, "an unknown user"), reasonText(c.Reason))
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Policies) rows() [][]string {
	rows := [][]string{{"NAME", "SETS", "SET AT", "BY", "REASON"}}
	for i := range p.List {
		one := &p.List[i]
		row := []string{PolicyName(one), PolicyText(one), "-", cmp.Or(one.By, "-"), cmp.Or(one.Reason, "-")}
		if p.Ended(*one) {
			row[1] += ", ended"
		}
		if !one.At.IsZero() {
			row[2] = timeText(one.At)
		}
		rows = append(rows, row)
	}
	return rows
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// policy describes the policy that replaces the limit of an entry, for people. It returns the empty string if there is none.
func (e *Entry) policy() string {
	p := e.Policy
	if p == nil || isPool(p) {
		return ""
	}
	text := ""
	if !p.Until.IsZero() {
		text = ", until " + timeText(p.Until)
	}
	if p.Limit != e.Limit {
		text += fmt.Sprintf("; the request asked for %d", e.Limit)
	}
	return text
}

// limit returns the limit that is in force for an entry: that of its policy, if it has one.
func (e *Entry) limit() int {
	if e.Policy != nil && !isPool(e.Policy) {
		return e.Policy.Limit
	}
	return e.Limit
}

// policies looks for policies that cannot be decoded or that match nothing, and for requests that ask for another limit than their
// policy's. It reads all documents of locks.
func (d *Doctor) policies(ctx context.Context) (Finding, error) {
	all, err := d.Locker.Policies(ctx)
	if err != nil {
		return Finding{}, err
	}
	shown := Policies{List: slices.Clone(all)}
	var unused []string
	for i := range all {
		d.hide(&shown.List[i])
		if isPool(&all[i]) {
			continue // an idle pool is not stored, and may be used tomorrow
		}
		matches, err := d.matches(ctx, &all[i])
		if err != nil {
			return Finding{}, err
		}
		if !matches {
			unused = append(unused, PolicyName(&shown.List[i]))
		}
	}
	damaged := shown.Unreadable()
	switch {
	case damaged != nil:
		return finding(Broken, damaged.Error(), "a later version of Lockstep may have set them; "+d.command("limit", "NAME", "--remove")+" removes one")
	case len(all) == 0:
		return ok("none is set")
	}
	resources, err := d.Resources(ctx, lockcore.Filter{})
	if err != nil {
		return Finding{}, err
	}
	differ := d.otherLimits(resources)
	var what, advice []string
	if len(unused) > 0 {
		what = append(what, fmt.Sprintf("%d %s no stored resource: %s", len(unused), table.Word(len(unused), "matches", "match"), firstNames(unused)))
		advice = append(advice, "a resource that was idle for a day is not stored; otherwise check the name, or remove the policy: "+d.command("limit", "NAME", "--remove"))
	}
	if len(differ) > 0 {
		what = append(what, fmt.Sprintf("on %s requests ask for other limits than the policy's: %s", table.Count(len(differ), "resource"), firstNames(differ)))
		advice = append(advice, "when the policy ends, their own limits are in force: change the programs if it is to stay")
	}
	if len(what) > 0 {
		return finding(Warning, strings.Join(what, "; "), strings.Join(advice, "; "))
	}
	return ok("%d %s set, and %s resources whose requests ask for the same limits", len(all), table.Word(len(all), "is", "are"), table.Word(len(all), "matches", "match"))
}

// matches sends one find for a resource to which a policy may apply.
func (d *Doctor) matches(ctx context.Context, p *lockcore.Policy) (bool, error) {
	id := bson.D{{Key: "_id", Value: p.Name}}
	if p.Prefix {
		id = bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: p.Name}}}} // only strings are
	}
	first := options.FindOne().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}})
	raw, err := d.Collection.FindOne(ctx, id, first).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil && strings.HasPrefix(store.IDOf(raw), p.Name), err
}

// otherLimits describes the resources with requests whose own limit is not the policy's, each by the first such request.
func (s *Site) otherLimits(resources []Resource) (differ []string) {
	for i := range resources {
		r := &resources[i]
		for _, e := range slices.Concat(r.Holders, r.Waiters) {
			if e.Policy != nil && e.limit() != e.Limit && e.State != lockcore.StateDraining {
				differ = append(differ, fmt.Sprintf("%q (%d, and the policy %d)", s.ResourceName(r.Name), e.Limit, e.Policy.Limit))
				break
			}
		}
	}
	return differ
}
