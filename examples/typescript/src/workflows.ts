import { CancellationScope, condition, continueAsNew, defineSignal, proxyActivities, setHandler, workflowInfo } from '@temporalio/workflow';
import type { Activities } from './activities';
import { LocksOptions, LostError, Resource, withLocks } from './lockstep';

const { debit, credit, undo, balance } = proxyActivities<Activities>({ startToCloseTimeout: '10s' });

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
      await locks.verify(); // the last step, so that the transfer is undone if a lock was lost
    } catch (err) {
      // Also what failed: a step that timed out may have been applied. The locks are still held, unless err is a LostError.
      await CancellationScope.nonCancellable(() => undo(key, t.from, t.to, t.amount));
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

/** Holds a resource until it gets the signal, and returns what it has lost. */
export async function holdAndLose(resource: Resource, options: LocksOptions = {}): Promise<unknown> {
  try {
    return await hold(resource, options);
  } catch (err) {
    if (!(err instanceof LostError)) throw err;
    return err.lost;
  }
}

/** Holds a resource until it gets the signal, and continues as new in a last run, which locks nothing. */
export async function holdAndContinue(resource: Resource, options: LocksOptions, last = false): Promise<void> {
  let told = false;
  setHandler(letGo, () => { told = true; });
  if (last) return;
  await withLocks(options, async (locks) => {
    await locks.acquire(resource);
    await condition(() => told);
    await continueAsNew<typeof holdAndContinue>(resource, options, true);
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
