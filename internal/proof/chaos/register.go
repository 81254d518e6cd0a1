package main

import (
	"errors"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"sync/atomic"
)

// Value is the content of a register.
type Value struct {
	// Balance is moved by sagas, and Count is raised by clients. A client writes both back, so a lost update of either shows.
	Balance, Count int64
}

// Use is an access to a register.
type Use struct {
	Resource string
	// LockID is the party that makes the access: the lock ID of a client, or a saga with its attempt.
	LockID string
	Fence  int64
	// Base is the version that a write is based on, and Value the new content.
	Base  int64
	Value Value
	// Key makes a change of the balance by Delta idempotent. With Undo the change of this key is reverted, and refused from then on.
	Key   string
	Delta int64
	Undo  bool
}

// Answer is the register's answer.
type Answer struct {
	// Refused is set if a greater fence came before.
	Refused bool
	Version int64
	Value   Value
}

// Registers are resources outside of the database that check fences, as each resource should that a lock protects. They live in
// the process of the program itself, which no fault concerns, and log each access in its order.
type Registers struct {
	log *Log
	// unchecked makes them accept every fence, for a control.
	unchecked bool

	mu  sync.Mutex
	all map[string]*register
	ops atomic.Int64
}

type register struct {
	version, fence int64
	value          Value
	applied        map[string]int64 // the changes by their keys
	undone         map[string]bool
}

// initialBalance is the balance of each register at the beginning.
const initialBalance = 1000

// newRegisters makes a register for each of some resources.
func newRegisters(log *Log, unchecked bool, resources []string) *Registers {
	r := &Registers{log: log, unchecked: unchecked, all: map[string]*register{}}
	for _, name := range resources {
		r.all[name] = &register{value: Value{Balance: initialBalance}, applied: map[string]int64{}, undone: map[string]bool{}}
	}
	return r
}

// use carries out an access, and logs it before the next one begins.
func (r *Registers) use(op string, in *Use, out *Answer, do func(*register)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops.Add(1)
	reg := r.all[in.Resource]
	if reg == nil {
		return errors.New("there is no register " + in.Resource)
	}
	rec := &Record{What: Access, Resource: in.Resource, LockID: in.LockID, Fence: in.Fence, Result: done, Error: op, Base: in.Base, Version: reg.version}
	if in.Delta != 0 {
		rec.Key, rec.Undo = in.Key, in.Undo
	}
	if in.Fence < reg.fence && !r.unchecked {
		out.Refused, rec.Result = true, refused
	} else {
		reg.fence = max(reg.fence, in.Fence)
		do(reg)
		out.Version, out.Value = reg.version, reg.value
	}
	r.log.Write(rec)
	return nil
}

// Read returns the content, and refuses smaller fences from then on.
func (r *Registers) Read(in *Use, out *Answer) error {
	return r.use("read", in, out, func(*register) {})
}

// Write replaces the content. Only the fence protects it: it does not compare versions.
func (r *Registers) Write(in *Use, out *Answer) error {
	return r.use("write", in, out, func(reg *register) {
		reg.version++
		reg.value = in.Value
	})
}

// Apply changes the balance, unless the change with this key was made or undone before.
func (r *Registers) Apply(in *Use, out *Answer) error {
	return r.use("apply", in, out, func(reg *register) {
		_, applied := reg.applied[in.Key]
		switch {
		case in.Undo && applied && !reg.undone[in.Key]:
			reg.version++
			reg.value.Balance -= reg.applied[in.Key]
		case !in.Undo && !applied && !reg.undone[in.Key]:
			reg.version++
			reg.value.Balance += in.Delta
			reg.applied[in.Key] = in.Delta
		}
		reg.undone[in.Key] = reg.undone[in.Key] || in.Undo
	})
}

// total returns the sum of all balances.
func (r *Registers) total() (sum int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reg := range r.all {
		sum += reg.value.Balance
	}
	return sum
}

// serve accepts connections until the listener is closed.
func (r *Registers) serve() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		return nil, err
	}
	s := rpc.NewServer()
	if err := s.RegisterName("Registers", r); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.ServeConn(c)
		}
	}()
	return l, nil
}

// registers is a process's connection to the registers.
type registers struct{ *rpc.Client }

func dialRegisters(address string) (registers, error) {
	c, err := rpc.Dial("tcp", address)
	return registers{c}, err
}

// errFenced is returned if the register has seen a greater fence.
var errFenced = errors.New("the register has seen a greater fence")

func (r registers) call(method string, in *Use) (out Answer, err error) {
	err = r.Call("Registers."+method, in, &out)
	if err == nil && out.Refused {
		err = errFenced
	}
	return out, err
}

// isRegister reports whether a resource has a register.
func isRegister(resource string) bool { return strings.HasPrefix(resource, "x/") }
