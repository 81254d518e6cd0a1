// Package currentrun answers the questions that a worker asks before it locks in the name of a workflow run, and takes over
// locks that other runs of the workflow hold.
//
// A workflow is one party, whichever of its runs asks: retries, resets, continue-as-new and restarts of a workflow ID share its lock ID. A
// request names the run that acts for it. If it meets locks of another run, it changes nothing and fails with a *lockcore.OtherRunError. The
// activity worker then asks Temporal once which run is current:
//
//  1. The run that asks is current and open. It asks again, with permission to take over from exactly that run. The kept holds continue under
//     the new run and a new fence. No other workflow gets the lock in between.
//  2. Another run is current. The attempt fails and is retried. If the attempt is a zombie, Temporal ignores its failure; otherwise the answer may
//     have come from a standby cluster that lags behind.
//  3. Temporal does not answer in time. The step waits, without using an attempt, as it does when the database cannot be reached.
package currentrun
