package engine

import "time"

// Document is what is stored for one resource: everything that is known of who holds it and who waits.
// Its fields are a promise: they may be added to, never renamed.
//
// It is a superset of the documents of the Go package mongo-lock (resource, exclusive, shared).
type Document struct {
	// ID is the resource.
	ID string `bson:"_id"`
	// Resource repeats the name, for mongo-lock's clients and for people.
	Resource string `bson:"resource"`
	// Seq counts the writes. Queue order comes from it, and it makes every answer a write.
	Seq int64 `bson:"seq"`
	// At is the database server's time of the last write. What is left of a promise is its expiry
	// less At; At is never used to order anything, since it can run backwards between writes.
	At time.Time `bson:"at"`
	// Fence is the highest fence that was given.
	Fence int64 `bson:"fence"`
	// Exclusive is the hold that excludes others; only its field acquired is set where there is none.
	Exclusive Hold `bson:"exclusive"`
	// Shared are the holds that go together.
	Shared Shared `bson:"shared"`
	// Parts are the running users of holds, and those that were cut off but may still trust.
	Parts []Part `bson:"parts"`
	// Claims are waiters that were granted the resource and have not confirmed it yet.
	Claims []Waiter `bson:"claims"`
	// Waiters is the queue, first come first.
	Waiters []Waiter `bson:"waiters"`
	// Evicted remembers, a few at a time, who was displaced after its promise had ended, or was released by force.
	Evicted []Evicted `bson:"evicted"`
	// Released remembers, a few at a time and for a while, what has ended, so that a request that
	// arrives late changes nothing.
	Released []Released `bson:"released"`
	// Last is what the last write did, for its caller to read in the answer.
	Last Last `bson:"last"`
	// IdleAt is when the last promise in the document ends, rounded up; absent while one has no end.
	// A TTL index removes the document a retention time later.
	IdleAt *time.Time `bson:"idleAt,omitempty"`
}

// Shared are the shared holds; count is what mongo-lock's clients look at.
type Shared struct {
	Count int64  `bson:"count"`
	Locks []Hold `bson:"locks"`
}

// Hold is a lock ID's place among a resource's holders. It is alive until ExpiresAt, which is never
// earlier than that of any of its parts. An expired hold stays until an incompatible grant needs its
// room: an owner that comes back before that was alone all the time.
type Hold struct {
	LockID    string     `bson:"lockId,omitempty"`
	Owner     string     `bson:"owner,omitempty"`
	Host      string     `bson:"host,omitempty"`
	Comment   string     `bson:"comment,omitempty"`
	CreatedAt time.Time  `bson:"createdAt,omitempty"`
	RenewedAt *time.Time `bson:"renewedAt,omitempty"`
	// ExpiresAt is absent where the hold has no end.
	ExpiresAt *time.Time `bson:"expiresAt,omitempty"`
	Acquired  bool       `bson:"acquired"`
	// Fence is the hold's current one; it grows when a part is superseded, by an upgrade, and when asked.
	Fence int64 `bson:"fence,omitempty"`
	// Granted is the fence with which the hold began.
	Granted int64 `bson:"granted,omitempty"`
	// Order is the highest that entered.
	Order int64 `bson:"order,omitempty"`
	// TTL is, in milliseconds, how long the hold stands without a sign of life; 0 is without end.
	TTL int64 `bson:"ttl,omitempty"`
	// Keep says that the hold outlives its parts.
	Keep bool `bson:"keep,omitempty"`
	// Limit is the semaphore limit that the grant was asked with; 0 is none.
	Limit int64 `bson:"limit,omitempty"`
	// Trace is the W3C traceparent of whoever entered last.
	Trace string `bson:"trace,omitempty"`
}

// Part is one running user of a hold: only a part trusts the lock at this moment.
type Part struct {
	LockID string `bson:"lockId"`
	Part   string `bson:"part"`
	Order  int64  `bson:"order"`
	Mode   string `bson:"mode"`
	Fence  int64  `bson:"fence"`
	TTL    int64  `bson:"ttl"`
	// ExpiresAt is absent where the part has no end.
	ExpiresAt *time.Time `bson:"expiresAt,omitempty"`
	// Revoked says that the part was superseded or its hold released: it is not renewed any more, and
	// keeps others than its own lock ID out until it leaves or expires, since it may still trust.
	Revoked bool `bson:"revoked,omitempty"`
	// Since is when the request queued, where it had to wait, and Granted when it was claimed for it.
	Since   *time.Time `bson:"since,omitempty"`
	Granted *time.Time `bson:"grantedAt,omitempty"`
}

// Waiter is a queued request, or a claim: one that was granted and is not confirmed.
type Waiter struct {
	LockID string `bson:"lockId"`
	Part   string `bson:"part"`
	Order  int64  `bson:"order"`
	Mode   string `bson:"mode"`
	Limit  int64  `bson:"limit,omitempty"`
	Owner  string `bson:"owner,omitempty"`
	// Seq is the document's write that queued it.
	Seq int64 `bson:"seq"`
	// Since is when it queued.
	Since time.Time `bson:"since"`
	// ExpiresAt is when the place is given up unless it is refreshed.
	ExpiresAt time.Time `bson:"expiresAt"`
	// Until is when the claim lapses, and Granted when it was made; both absent in the queue, but for
	// a waiter that slept through its claim: that one keeps its place at the head and is passed over
	// until it is heard of again.
	Until   *time.Time `bson:"until,omitempty"`
	Granted *time.Time `bson:"grantedAt,omitempty"`
}

// Evicted says that a lock ID lost its hold, with which fence, and to whom or why.
type Evicted struct {
	LockID string `bson:"lockId"`
	Fence  int64  `bson:"fence"`
	By     string `bson:"by,omitempty"`
	Reason string `bson:"reason,omitempty"`
}

// Released says that everything a lock ID, or one of its parts, asked for up to an order has ended.
type Released struct {
	LockID string `bson:"lockId"`
	// Part is absent where the whole lock ID was released.
	Part  *string   `bson:"part,omitempty"`
	Order int64     `bson:"order"`
	Until time.Time `bson:"until"`
}

// Last is what the last write did.
type Last struct {
	// Ended are the holds that this write ended.
	Ended []Ended `bson:"ended"`
	// Position is the place in the queue of the request that this write was for, from 1; 0 without one.
	Position int64 `bson:"position"`
	// Length is how many wait.
	Length int64 `bson:"length"`
}

// Ended is a hold that ended, with what its span needs.
type Ended struct {
	LockID    string    `bson:"lockId"`
	Owner     string    `bson:"owner,omitempty"`
	Mode      string    `bson:"mode"`
	Fence     int64     `bson:"fence"`
	CreatedAt time.Time `bson:"createdAt"`
	Trace     string    `bson:"trace,omitempty"`
	// How is HowReleased or HowExpired.
	How string `bson:"how"`
}
