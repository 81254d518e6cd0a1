// Package lockactivities implements Lockstep's own activities. Workflow code of any SDK calls them by name, with JSON in and out;
// package wire has their inputs and results, docs/activities.md in the repository describes them for users.
//
//   - Acquire takes locks, Renew and Leave act on leases that Acquire returned.
//   - Wait and Acquire wait in back-off: each attempt fails with a retryable lockstep.Busy whose NextRetryDelay is the time until the
//     next check, so that waiting uses no slot and adds nothing to the history. The worker that frees the lock completes the activity
//     in between, by its ID, with plain JSON that contains no name: every worker can read it, whatever its codec is. Wait acquires nothing. If it
//     did, it would create a part that no process renews, and that drains when the step supersedes it. A process that has run an attempt of it
//     watches the resource, and compares versions once a second, because a process that wakes no workflows may have freed it.
//   - Verify verifies and renews what the workflow holds. A commit asks only about locks that it last used over five minutes ago.
//   - Release releases what the workflow holds.
//   - Bar ends the steps of a saga, and of the sagas inside it, before its first compensation.
//   - Keep extends holds for as long as it runs.
package lockactivities
