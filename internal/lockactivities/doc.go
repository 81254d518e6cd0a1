// Package lockactivities implements Lockstep's own activities. Workflow code of any SDK calls them by name, with JSON in and out;
// package wire has their inputs and results, docs/activities.md in the repository describes them for users.
//
//   - Acquire takes locks, Renew and Leave act on leases that Acquire returned.
//   - Wait and Acquire wait in back-off: each attempt fails with a retryable lockstep.Busy whose NextRetryDelay is the time until the
//     next check, so that waiting uses no slot and adds nothing to the history. The worker that frees the lock completes the activity
//     in between, by its ID.
//   - Release verifies or releases what the workflow holds.
//   - Bar ends the steps of a saga before its first compensation.
//   - Keep extends holds for as long as it runs.
package lockactivities
