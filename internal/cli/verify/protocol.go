package verify

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

// setup is the first line that a client process reads. It answers it when it is connected.
type setup struct {
	URI        string `json:"uri"`
	Database   string `json:"database"`
	Collection string `json:"collection"`
	// Client is the number of the process, and its lock ID.
	Client int `json:"client"`
	// Seed draws when connections are cut, and what a broken store does.
	Seed uint64 `json:"seed"`
	// Control names the defect of the store, or is empty.
	Control string `json:"control,omitempty"`
}

// String describes the setup in errors. The URI may contain a password.
func (s setup) String() string { return fmt.Sprintf("the setup of client %d", s.Client) }

// String describes the order in errors.
func (o order) String() string { return fmt.Sprintf("%q on %q", o.Do, o.Resource) }

// Orders that are not operations of a history.
const (
	// askValid asks whether the lease is trusted.
	askValid linear.Verb = "valid"
	// cutOn and cutOff begin and end the time in which connections are cut.
	cutOn  linear.Verb = "cut on"
	cutOff linear.Verb = "cut off"
	// ping asks for an answer.
	ping linear.Verb = "ping"
)

// order is a line that a client process reads. It answers each with one line, before it reads the next.
type order struct {
	Do       linear.Verb `json:"do"`
	Resource string      `json:"resource,omitempty"`
	// TTL is that of a lock that the order asks for.
	TTL time.Duration `json:"ttl,omitempty"`
	// Within bounds the time to ask, and to wait in the queue.
	Within time.Duration `json:"within,omitempty"`
}

// answer is a line that a client process writes.
type answer struct {
	// OK is set if the order was carried out: granted, held, left, trusted.
	OK bool `json:"ok"`
	// Fence is that of a lease.
	Fence int64 `json:"fence,omitempty"`
	// Failed is set if nothing is known of the outcome, or the client could not work. Text is the reason.
	Failed bool   `json:"failed,omitempty"`
	Text   string `json:"text,omitempty"`
	// Cuts is the number of connections that were cut so far.
	Cuts int `json:"cuts,omitempty"`
}
