import { CancellationScope, condition, defineSignal, proxyActivities, setHandler, workflowInfo } from '@temporalio/workflow';
import type { Activities } from './activities';
import { LocksOptions, Resource, withLocks } from './lockstep';

const { debit, credit, refund, balance } = proxyActivities<Activities>({ startToCloseTimeout: '10s' });

export interface Transfer { from: string; to: string; amount: number }

/** A saga: it moves money, or returns it. No other saga changes the accounts in between. */
export function transfer(t: Transfer, options: LocksOptions = {}): Promise<void> {
  return withLocks(options, async (locks, round) => {
    const key = `${workflowInfo().workflowId}/${round}`;
    await locks.acquire({ name: `account/${t.from}` });
    try {
      await debit(key, t.from, t.amount);
      await locks.acquire({ name: `account/${t.to}` }); // at the step that needs it, so that deadlocks can happen
      await credit(key, t.to, t.amount);
    } catch (err) {
      // Also where the debit failed: one that timed out may have been applied. The locks are still held.
      await CancellationScope.nonCancellable(() => refund(key, t.from, t.amount));
      throw err;
    }
  });
}

/** Adds up accounts while no transfer is half done. */
export function audit(accounts: string[], options: LocksOptions = {}): Promise<number> {
  return withLocks(options, async (locks) => {
    await locks.acquire(...accounts.map((a): Resource => ({ name: `account/${a}`, mode: 'S' })));
    let sum = 0;
    for (const a of accounts) sum += await balance(a);
    return sum;
  });
}

export const letGo = defineSignal('letGo');

/** Holds a resource until it gets the signal, and returns its fence. */
export function hold(resource: Resource, options: LocksOptions = {}): Promise<number> {
  let told = false;
  setHandler(letGo, () => { told = true; });
  return withLocks(options, async (locks) => {
    const [lease] = await locks.acquire(resource);
    await condition(() => told);
    return lease!.fence;
  });
}

/** Acquires a resource, and again after the signal: that fails if the lock was lost. */
export function holdAgain(resource: Resource, options: LocksOptions = {}): Promise<void> {
  let told = false;
  setHandler(letGo, () => { told = true; });
  return withLocks(options, async (locks) => {
    await locks.acquire(resource);
    await condition(() => told);
    await locks.acquire(resource);
  });
}

export const giveUp = defineSignal('giveUp');

/** Waits for a resource until it gets the signal to give up, and continues without it. It must not get the lock later. */
export async function impatient(resource: Resource, options: LocksOptions = {}): Promise<void> {
  let gaveUp = false, told = false;
  setHandler(giveUp, () => { gaveUp = true; });
  setHandler(letGo, () => { told = true; });
  await withLocks(options, (locks) => Promise.race([locks.acquire(resource).then(() => {}), condition(() => gaveUp)]));
  await condition(() => told);
}
