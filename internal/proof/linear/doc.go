// Package linear checks histories of lock operations for linearizability: whether there is an order of all
// operations, each at a moment between its call and its answer, in which a single lock could have given all
// the answers.
//
// # The model
//
// A resource is held by one client exclusively, or by any number in shared mode. Each grant has a greater
// fence than all grants before it.
//
//	take     granted exactly if the holders admit it. Otherwise refused
//	wait     granted only if the holders admit it. It may end without a grant at any moment
//	renew    succeeds exactly if the client holds
//	leave    ends the client's hold
//
// A resource must be used either with takes or with waits: a take is also refused if others are ahead in the
// queue, and the model has no queue.
//
// # Unknown outcomes
//
// A take or a wait that failed may have been applied, at any moment until its client has left the resource.
// That leave is a [Settle]. No other operation may have an unknown outcome. A client repeats a leave until it
// is acknowledged, and a renewal that failed is not part of the history: it changes nothing in the model.
package linear
