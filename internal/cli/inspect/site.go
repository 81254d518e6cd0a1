package inspect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Site is a collection of locks and the Temporal namespace of its workflows.
type Site struct {
	Locker *lockcore.Steps
	// Collection is the Locker's, for the doctor.
	Collection *mongo.Collection
	// MaxPoolSize is the option of the database's URI, for the doctor. Nil is the driver's default, and 0 no limit.
	MaxPoolSize *uint64
	// Temporal answers questions about workflows. The zero value asks no server.
	Temporal Temporal
	// Flags are the flags with which the lockstep command finds the locks, for commands to copy.
	Flags []string
	// Discreet leaves the names of resources out of commands, comments and failures. ResourceName returns hashes then.
	Discreet bool
}

// ResourceName returns the name of a resource for people.
func (s *Site) ResourceName(resource string) string {
	if !s.Discreet {
		return resource
	}
	sum := sha256.Sum256([]byte(resource))
	return hex.EncodeToString(sum[:6])
}

// Temporal is a connection to a namespace.
type Temporal struct {
	Service                Frontend
	Namespace, NamespaceID string
}

// Frontend is the part of Temporal's service that this package calls.
type Frontend interface {
	janitor.Service
	DescribeNamespace(ctx context.Context, in *workflowservice.DescribeNamespaceRequest, opts ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error)
	GetSystemInfo(ctx context.Context, in *workflowservice.GetSystemInfoRequest, opts ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error)
	DescribeTaskQueue(ctx context.Context, in *workflowservice.DescribeTaskQueueRequest, opts ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error)
	GetWorkflowExecutionHistoryReverse(
		ctx context.Context, in *workflowservice.GetWorkflowExecutionHistoryReverseRequest, opts ...grpc.CallOption,
	) (*workflowservice.GetWorkflowExecutionHistoryReverseResponse, error)
	ListWorkers(ctx context.Context, in *workflowservice.ListWorkersRequest, opts ...grpc.CallOption) (*workflowservice.ListWorkersResponse, error)
}

// ErrNoCollection is returned if the collection of locks does not exist.
var ErrNoCollection = errors.New("there is no collection of locks")

// CheckCollection returns an error that matches [ErrNoCollection] if the collection does not exist or is empty. The Locker
// does not know: it begins a collection of locks there, even if it only reads.
func (s *Site) CheckCollection(ctx context.Context) error {
	err := s.Collection.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("%w: database %q has no collection %q, or it is empty", ErrNoCollection, s.Collection.Database().Name(), s.Collection.Name())
	}
	return err
}

// Resource is a resource that is held or waited for.
type Resource struct {
	Name string `json:"resource"`
	// Holders includes claims and holds that drain. Waiters is the queue.
	Holders []Entry `json:"holders,omitempty"`
	Waiters []Entry `json:"waiters,omitempty"`
	// Forced has the last forced releases, if they were asked for.
	Forced []Loss `json:"forced,omitempty"`
	// LongestWait is the time that the waiter with the longest wait has waited.
	LongestWait time.Duration `json:"longestWait,omitempty"`
	// Damaged describes why the document cannot be decoded. The other fields are empty then.
	Damaged string `json:"damaged,omitempty"`
	// foreign is set if Damaged is, and Name is the _id of another program's document.
	foreign bool
	// Internal is the result of the function [Internal].
	Internal bool `json:"internal,omitempty"`
}

// Entry is a party's hold on a resource, or its wait for one.
type Entry struct {
	Party Party `json:"party"`
	// For is the time for which it has held or waited.
	For time.Duration `json:"for"`
	lockcore.Status
	// End is the command that ends it by force, with [Reason] in place of the reason. It is empty for a draining part whose party
	// holds the resource again: the command would end that hold too.
	End string `json:"end"`
	// endNow is the command for a holder that is dead.
	endNow string
	// ahead names the maintenance that is ahead of a waiter.
	ahead string
	// pool describes the pool for which a waiter waits.
	pool string
}

// isWorkflows reports whether the entry is a hold that a workflow keeps, not one that a single step keeps while it waits.
func (e *Entry) isWorkflows() bool { return e.Kept && e.Within == "" }

// Internal reports whether Lockstep itself locks a resource: a janitor, or the doctor.
func Internal(resource string) bool {
	return resource == probe || strings.HasPrefix(resource, janitor.LockName(""))
}

// Resources lists the resources that a filter selects. Without a filter it also lists the documents of other programs.
// Documents that cannot be decoded come first. The others are sorted by the number of waiters, the longest wait and the name.
func (s *Site) Resources(ctx context.Context, f lockcore.Filter) ([]Resource, error) {
	var all []Resource
	ahead := "" // of the next waiter: a text about the maintenance that waits
	for st, err := range s.Locker.Status(ctx, f) {
		var damaged *lockcore.DamagedError
		if errors.As(err, &damaged) {
			all = append(all, Resource{Name: damaged.Resource, Damaged: "cannot be decoded: " + damaged.Err.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].Name != st.Resource {
			all, ahead = append(all, Resource{Name: st.Resource, Internal: Internal(st.Resource)}), ""
		}
		r := &all[len(all)-1]
		if reason, ok := strings.CutPrefix(st.Owner, MaintenanceOf(st.Resource)); ok && st.LockID == Maintenance {
			st.Comment = reason // which a waiter does not have
		}
		if s.Discreet {
			st.Comment = ""
			if st.Member != "" {
				st.Member = s.ResourceName(st.Member)
			}
			if st.Policy != nil {
				hidden := *st.Policy
				s.hide(&hidden)
				st.Policy = &hidden
			}
		}
		e := Entry{Party: s.PartyOf(&st), Status: st, End: s.commandToEnd(&st, st.State == lockcore.StateDraining), endNow: s.commandToEnd(&st, true)}
		if st.State != lockcore.StateWaiting {
			if !st.Since.IsZero() {
				e.For = max(0, time.Since(st.Since))
			}
			r.Holders = append(r.Holders, e)
			continue
		}
		e.For, e.ahead = st.Silent, ahead
		if st.LockID == Maintenance {
			ahead = "; maintenance is ahead of it: " + st.Comment
		}
		r.Waiters = append(r.Waiters, e)
		r.LongestWait = max(r.LongestWait, e.For)
	}
	for i := range all {
		all[i].holdsFirst()
		all[i].explainPools()
	}
	if s.Collection != nil && selectsAll(&f) {
		foreign, err := s.foreign(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, foreign...)
	}
	intact := func(r Resource) int { return map[bool]int{true: 1}[r.Damaged == ""] }
	slices.SortStableFunc(all, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(intact(a), intact(b)), cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// holdsFirst sorts the holders: draining parts come last.
func (r *Resource) holdsFirst() {
	drains := func(e Entry) int {
		if e.State == lockcore.StateDraining {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(r.Holders, func(a, b Entry) int { return drains(a) - drains(b) })
	holds := map[string]bool{} // by lock ID
	for i := range r.Holders {
		e := &r.Holders[i]
		holds[e.LockID] = holds[e.LockID] || e.State == lockcore.StateHolding
		if e.State == lockcore.StateDraining && holds[e.LockID] {
			e.End, e.endNow = "", ""
		}
	}
}

// Party is the holder of a lock, or a waiter.
type Party struct {
	// Name is for people: the workflow ID of a workflow in the site's namespace, the ID and type of an activity without a workflow, otherwise
	// the owner.
	Name string `json:"name"`
	// Workflow and Namespace (an ID) are set for workflows. Step is set if the lock belongs to a single step.
	Workflow  string `json:"workflow,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Step      string `json:"step,omitempty"`
	// Activity is the ID of an activity without a workflow. Namespace is set too.
	Activity string `json:"activity,omitempty"`
	// Owner is lockcore's name of the party. An owner that waits for one lock keeps all others that it holds.
	Owner string `json:"owner"`
}

// Loss is a hold that a party has lost.
type Loss struct {
	Party    Party     `json:"party"`
	Resource string    `json:"resource"`
	At       time.Time `json:"at"`
	// By was granted the resource of an expired hold. Reason is that of a forced release, with the operator.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Losses lists the lost holds that the documents which a filter selects still know. Resources reports documents that
// cannot be decoded.
func (s *Site) Losses(ctx context.Context, f lockcore.Filter) (all []Loss, err error) {
	for l, err := range s.Locker.Losses(ctx, f) {
		if errors.Is(err, lockcore.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s.lossOf(&l))
	}
	return all, nil
}

func (s *Site) lossOf(l *lockcore.Loss) Loss {
	of := lockcore.Status{Holder: lockcore.Holder{LockID: l.LockID, Run: l.Run}}
	return Loss{Party: s.PartyOf(&of), Resource: l.Resource, At: l.At, By: s.OwnerName(l.By), Reason: l.Reason}
}

// Missed is a loss that a saga found out only when it released its locks after a commit.
type Missed struct {
	Loss
	// ReleasedAt is the time of that release.
	ReleasedAt time.Time `json:"releasedAt"`
}

// Missed lists the losses of the last 24 hours that sagas found out only after they had committed. Resources reports
// the documents that cannot be decoded.
func (s *Site) Missed(ctx context.Context) (all []Missed, err error) {
	for m, err := range s.Locker.Missed(ctx, lockcore.Filter{}) {
		if errors.Is(err, lockcore.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Missed{s.lossOf(&m), m.ReleasedAt})
	}
	return all, nil
}

// Show returns a resource with its last forced releases. ok is false if it is neither held nor waited for.
func (s *Site) Show(ctx context.Context, resource string) (r Resource, ok bool, err error) {
	found, err := s.Resources(ctx, lockcore.Filter{Resource: resource})
	if err != nil {
		return Resource{}, false, err
	}
	r = Resource{Name: resource}
	if len(found) > 0 {
		r = found[0]
	}
	r.Forced, err = s.Losses(ctx, lockcore.Filter{Resource: resource})
	r.Forced = slices.DeleteFunc(r.Forced, func(l Loss) bool { return l.Reason == "" })
	return r, len(found) > 0, err
}

// Maintenance is the lock ID of the holds that operators take.
const Maintenance = "maintenance"

// MaintenanceOf begins the owner of a hold for maintenance. The reason follows. Each resource has its own owner: with
// one owner for all, a party that keeps one of the resources and waits for another would be the victim of a deadlock.
func MaintenanceOf(resource string) string { return Maintenance + " of " + resource + ": " }

// PartyOf returns the party of an entry.
func (s *Site) PartyOf(st *lockcore.Status) Party {
	p := Party{Owner: cmp.Or(st.Owner, st.LockID)}
	p.Name = p.Owner
	if st.LockID == Maintenance {
		p.Name = Maintenance
	}
	if st.Run == "" { // plain Go names its parties as it likes
		return p
	}
	if of, ok := wire.ParseStandalone(st.LockID); ok {
		p.Activity, p.Namespace = of.ActivityID, of.Namespace
		p.Name = s.OwnerName(st.LockID)
	}
	if of, step, err := wire.ParseLockID(st.LockID); err == nil {
		p.Workflow, p.Namespace, p.Step = of.WorkflowID, of.Namespace, step
		p.Owner = cmp.Or(st.Owner, of.Owner())
		p.Name = s.OwnerName(of.Owner())
	}
	return p
}

// OwnerName returns the workflow ID of an owner that is a workflow of the site's namespace, or of any namespace if the
// site has none. It describes an activity without a workflow, and returns other owners unchanged.
func (s *Site) OwnerName(owner string) string {
	isOwn := func(namespace string) bool {
		return namespace == s.Temporal.NamespaceID || s.Temporal.NamespaceID == "" && wire.IsNamespaceID(namespace)
	}
	if of, ok := wire.ParseStandalone(owner); ok && isOwn(of.Namespace) {
		return of.String()
	} else if ok {
		return of.String() + " in the namespace with the ID " + of.Namespace
	}
	if of, _, err := wire.ParseLockID(owner); err == nil && isOwn(of.Namespace) {
		return of.WorkflowID
	}
	return owner
}

// commandToEnd returns the shell command that ends an entry by force. If now is set, it does not wait for running parts.
func (s *Site) commandToEnd(st *lockcore.Status, now bool) string {
	verb, names, command := []string{"release"}, []string{st.Resource, st.LockID}, s.CommandWithReason
	if now {
		verb = append(verb, "--now")
	}
	if st.LockID == Maintenance {
		verb, names, command = []string{"unhold"}, names[:1], s.Command
	}
	if s.Discreet {
		return "lockstep " + strings.Join(verb, " ") + ", with the names that are hidden here"
	}
	return command(verb, names...)
}

// Reason is the place of the reason in a command that needs one, in quotes, so that the command can be pasted as it is.
const Reason = "'your reason'"

// CommandWithReason returns a command like Command, with Reason.
func (s *Site) CommandWithReason(verb []string, names ...string) string {
	const reason = " --reason " + Reason
	if slices.ContainsFunc(names, isFlag) { // after --, it would be a name
		return shellLine(slices.Concat([]string{"lockstep"}, verb, s.Flags)...) + reason + " -- " + shellLine(names...)
	}
	return s.Command(verb, names...) + reason
}

// Command returns a lockstep command about names, with the flags that it needs to find the locks. A shell that it is pasted
// into passes the names on as they are.
func (s *Site) Command(verb []string, names ...string) string {
	words := append([]string{"lockstep"}, verb...)
	if slices.ContainsFunc(names, isFlag) {
		return shellLine(append(words, s.Flags...)...) + " -- " + shellLine(names...)
	}
	return shellLine(slices.Concat(words, names, s.Flags)...)
}

// isFlag reports whether a command takes a name for a flag, unless it follows "--".
func isFlag(name string) bool { return strings.HasPrefix(name, "-") }

// command returns a lockstep command without names.
func (s *Site) command(words ...string) string {
	if words[0] == "janitor" {
		words = append(words, s.namespaceFlag()...)
	}
	return s.Command(words)
}

// temporalCommand returns a command of Temporal's own command line.
func (s *Site) temporalCommand(words ...string) string {
	return shellLine(slices.Concat([]string{"temporal"}, words, s.namespaceFlag())...)
}

func (s *Site) namespaceFlag() []string {
	if n := s.Temporal.Namespace; n != "" && n != "default" {
		return []string{"--namespace", n}
	}
	return nil
}

// shellLine joins words to a line for a shell (sh, bash or zsh), and quotes them where needed.
func shellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		switch {
		case !utf8.ValidString(word) || strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }):
			quoted[i] = ansiQuote(word)
		case word == "" || strings.ContainsFunc(word, needsQuotes):
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		default:
			quoted[i] = word
		}
	}
	return strings.Join(quoted, " ")
}

// ansiQuote quotes a word with characters that must not be pasted into a terminal, even in quotes: its line editor obeys
// them, and a terminal's own mark of the end of a paste is one. All but letters, digits and a few others are numbers.
func ansiQuote(word string) string {
	var b strings.Builder
	for i := range len(word) {
		if c := word[i]; c < utf8.RuneSelf && (c == ' ' || !needsQuotes(rune(c))) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	return "$'" + b.String() + "'"
}

// needsQuotes reports whether a shell may interpret a character. zsh interprets = at the beginning of a word.
func needsQuotes(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.:@%+,", r)
}
