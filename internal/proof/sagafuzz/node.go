package main

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Kind is the kind of a node.
type Kind string

const (
	Seq   Kind = "seq"
	Par   Kind = "par"
	Step  Kind = "step"
	Saga  Kind = "saga"
	Lock  Kind = "lock"
	Sleep Kind = "sleep"
	// Verify asks whether the saga or the Lock around it has held its locks without a gap.
	Verify Kind = "verify"
)

// Node is a piece of workflow code.
type Node struct {
	Kind     Kind
	ID       int // unique in its workflow
	Children []Node
	// Needs lists the resources of a step's guard or of a Lock.
	Needs []Need
	// Scope is the scope of a step's guard. Empty selects the default of its position.
	Scope string
	// HoldTTL, MaxWait and Try are options of locks. Retries is an option of a saga.
	HoldTTL, MaxWait time.Duration
	Try              bool
	Retries          int
	// Undo selects the compensation of a saga's step: "step" (Saga.Step), "with" (CompensateWith), "saga" (a saga inside its
	// compensation), or none. With Reuse the caller changes the arguments after it has scheduled the step.
	Undo  string
	Reuse bool
	// Heeds makes a saga fail if a signal or a cancellation has arrived by the end of its function. Skip leaves a Lock out if a
	// signal has arrived before it. More is a step that runs under a Lock if a signal has arrived by its end.
	Heeds, Skip bool
	More        *Node
	// Ignores makes the workflow continue after the step has failed.
	Ignores bool
	// Rule lists the resources of the worker's rule for the step. Time is the length of its work, or of a sleep.
	Rule          []Need
	Time, Timeout time.Duration
	// UndoTime is the length of its compensation's work. Defaults to 10 ms.
	UndoTime time.Duration
	// Attempts bounds its attempts. With Fail it fails. With Deaf it ignores its cancellation. With Once only the first attempt takes long.
	Attempts         int32
	Fail, Deaf, Once bool
	// Priority is that of the step's activity and of its compensation; 0 is the default.
	Priority int `json:",omitempty"`
}

// each calls fn for the node and all inside it.
func (n *Node) each(fn func(*Node)) {
	fn(n)
	if n.More != nil {
		n.More.each(fn)
	}
	for i := range n.Children {
		n.Children[i].each(fn)
	}
}

// Need is a resource as a step needs it: exclusive, shared, with a limit if that is not 0, or any member of a pool.
type Need struct {
	Name   string
	Shared bool
	Limit  int
	Pool   bool `json:",omitempty"`
}

func (n Need) resource() lockcore.Resource {
	switch {
	case n.Pool:
		return lockcore.Pool(n.Name)
	case n.Limit > 0:
		return lockcore.SharedLimit(n.Name, n.Limit)
	case n.Shared:
		return lockcore.Shared(n.Name)
	}
	return lockcore.Exclusive(n.Name)
}

func resources(needs []Need) (all []lockcore.Resource) {
	for _, n := range needs {
		all = append(all, n.resource())
	}
	return all
}
