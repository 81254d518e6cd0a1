// Package transfer moves money between accounts. Locks on the accounts isolate the sagas from each other and from auditors.
//
// The bank is naive on purpose. A step reads a balance, computes, and writes the result back, as most code does. So two
// simultaneous steps on one account lose an update, and an auditor who reads the accounts one by one misses money in
// transit. With guards, neither can happen. Without guards, both do.
//
// Files: bank.go has the accounts and the activities, workflows.go the two workflows.
package transfer
