// Package transfer moves money between accounts, in sagas that are isolated from each other and from
// auditors by locks on the accounts.
//
// The bank is naive on purpose. A step reads a balance, computes, and writes the result back, as most
// code does, so two steps on one account at the same time lose an update, and an auditor who reads the
// accounts one by one sees money that is under way as missing. With guards, neither can happen. Run
// it with guards off and both do.
//
// Files: bank.go has the accounts and the activities on them, workflows.go the two workflows.
package transfer
