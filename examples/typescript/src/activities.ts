// A bank that reads an account, computes, and writes it: without isolation, the write of another transfer in between is lost.
import { setTimeout } from 'node:timers/promises';
import { ApplicationFailure } from '@temporalio/activity';

export function makeActivities(accounts: Map<string, number>) {
  const applied = new Set<string>(); // by key, so that a repeated step does nothing

  async function add(key: string, account: string, amount: number): Promise<void> {
    if (applied.has(key)) return;
    const before = accounts.get(account) ?? 0;
    await setTimeout(5);
    if (before + amount < 0) throw ApplicationFailure.nonRetryable(`${account} has ${before}`, 'InsufficientFunds');
    accounts.set(account, before + amount);
    applied.add(key);
  }

  return {
    debit: (key: string, account: string, amount: number) => add(`${key}/debit`, account, -amount),
    credit: (key: string, account: string, amount: number) => add(`${key}/credit`, account, amount),
    /** Undoes the steps of a transfer that were applied. */
    async undo(key: string, from: string, to: string, amount: number): Promise<void> {
      if (applied.has(`${key}/credit`)) await add(`${key}/undo-credit`, to, -amount);
      if (applied.has(`${key}/debit`)) await add(`${key}/undo-debit`, from, amount);
    },
    async balance(account: string): Promise<number> {
      await setTimeout(5);
      return accounts.get(account) ?? 0;
    },
  };
}

export type Activities = ReturnType<typeof makeActivities>;
