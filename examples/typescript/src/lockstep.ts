// Lockstep's lock activities for workflow code, called by name and JSON as in docs/activities.md. `lockstep worker` serves
// them on a task queue of its own. Copy this file into your project.
import {
  ActivityFailure, ActivityOptions, ApplicationFailure, CancellationScope, ContinueAsNew, proxyActivities, workflowInfo,
} from '@temporalio/workflow';

/** A resource and its mode: 'X' exclusive, 'S' shared, 'S' with a limit as a semaphore. */
export interface Resource { name: string; mode?: 'X' | 'S'; limit?: number }

/** A granted lock. A resource that compares fences refuses writers that have lost their lock. */
export interface Lease { resource: string; lockId: string; mode: 'X' | 'S'; fence: number; joined?: boolean }

/** A party that holds a lock. */
export interface Holder { lockId: string; owner: string; mode: 'X' | 'S'; fence: number; expiresIn?: string }

/** The details of failures of the types 'lockstep.Busy' and 'lockstep.Parked'. */
export interface Busy {
  resource: string; lockId: string; position?: number; waiting?: number; full?: boolean; holders?: Holder[]; attempt?: number; unavailable?: boolean;
}

export interface LocksOptions {
  /** The task queue that `lockstep worker` serves. Defaults to 'lockstep'. */
  taskQueue?: string;
  /** The time after which the locks expire unless they are extended. Defaults to '10m'. */
  holdTtl?: string;
  /** The longest wait for one resource, such as '5m'. Then it fails with 'lockstep.Busy'. Defaults to no bound. */
  maxWait?: string;
}

/** The details of a LostError: which lock was lost, and to whom or for what reason, as far as that is known. */
export interface Lost { resource: string; lockId?: string; by?: string; reason?: string }

/** A lock was lost, and another party may have held it since: compensate. In the workflow's result it is an ApplicationFailure of this type. */
export class LostError extends ApplicationFailure {
  static readonly TYPE = 'lockstep.Lost';

  constructor(readonly lost: Lost, message: string, cause: Error) { super(message, LostError.TYPE, true, [lost], cause); }
}

/** The failure type of a deadlock victim. */
export const DEADLOCK = 'lockstep.Deadlock';

/** The number of times that work may begin, if it is a deadlock victim each time. */
const ROUNDS = 20;

interface LockActivities {
  'lockstep.Acquire'(params: object): Promise<{ lockId: string; leases: Lease[] }>;
  'lockstep.Wait'(params: object): Promise<void>;
  'lockstep.Verify'(params: object): Promise<object>;
  'lockstep.Release'(params: object): Promise<object>;
}

/**
 * Runs work, verifies its locks, and releases them at the end, even if work fails or the workflow is cancelled. If a lock was
 * lost, it throws a LostError instead of returning the result; work that must be undone then calls locks.verify itself, as
 * its last step. If work is a deadlock victim, it begins again after the other parties. So work must undo its steps before it
 * throws, while the locks are held. A workflow may make several calls at the same time only if the resources differ.
 */
export async function withLocks<T>(options: LocksOptions, work: (locks: Locks, round: number) => Promise<T>): Promise<T> {
  for (let round = 1; ; round++) {
    const locks = new Locks(options);
    try {
      const result = await work(locks, round);
      await locks.commit();
      return result;
    } catch (err) {
      if (err instanceof ContinueAsNew) await locks.commit(); // work has succeeded
      if (round === ROUNDS || !(err instanceof ApplicationFailure && err.type === DEADLOCK)) throw err;
    } finally {
      await locks.release();
    }
  }
}

// Numbers the requests of the run: a copy of a request that arrives after a later release locks nothing. The SDK gives each
// workflow run a module state of its own.
let schedule = 0;

/** The locks of one call of withLocks. */
export class Locks {
  private readonly asked = new Set<string>();
  private readonly held = new Map<string, number>(); // the schedule number of the request since which it is held
  private ended = false;
  private verified: { at: number; locks: number } | undefined;
  private readonly started = workflowInfo().startTime; // the party that started last is the victim of a deadlock

  constructor(private readonly options: LocksOptions) {}

  /**
   * Acquires locks in addition to those that it holds, first come, first served. A wait takes no worker's slot, and the
   * number of its events does not depend on its length. Fails with a LostError, if it held one of the locks before; with an
   * ActivityFailure whose cause is an ApplicationFailure of type 'lockstep.Busy' (maxWait is over) or 'lockstep.Invalid'; with
   * an ApplicationFailure of type DEADLOCK; and with Temporal's error if the workflow is cancelled.
   */
  async acquire(...resources: Resource[]): Promise<Lease[]> {
    for (const r of resources) this.asked.add(r.name);
    for (let vain = 0; ;) {
      this.checkNotEnded();
      const order = { schedule: ++schedule, attempt: 1 };
      try {
        const { leases } = await this.activities()['lockstep.Acquire']({
          resources: resources.map((r) => ({ ...r, heldSince: this.held.get(r.name) })),
          schedule: order.schedule, holdTtl: this.options.holdTtl ?? '10m', holdOnly: true, park: true, started: this.started,
        });
        for (const r of resources) if (!this.held.has(r.name)) this.held.set(r.name, order.schedule);
        return leases;
      } catch (err) {
        const busy = parkedOf(err);
        if (!busy) throw typed(err);
        this.checkNotEnded();
        vain = busy.full || busy.unavailable ? vain + 1 : 0; // not in a queue
        await this.wait(resources, busy, { ...order, attempt: busy.attempt ?? 1 }, vain);
      }
    }
  }

  /**
   * Verifies that each lock has been held without a gap since it was acquired, and renews it. Fails with a LostError if one was
   * lost. Costs one activity, and nothing if no lock is held.
   */
  async verify(): Promise<void> {
    const used = [...this.held].map(([resource, since]) => ({ resource, schedule: since }));
    if (used.length === 0) return;
    await this.activities()['lockstep.Verify']({ used }).catch((err: unknown) => { throw typed(err); });
    this.verified = { at: Date.now(), locks: used.length };
  }

  /** Verifies the locks, even in a cancelled workflow, unless work has just done so. withLocks calls it. */
  async commit(): Promise<void> {
    this.ended = true;
    const { at, locks } = this.verified ?? {};
    if (at === Date.now() && locks === this.held.size) return; // a workflow's clock stands still until its next task
    await CancellationScope.nonCancellable(() => this.verify());
  }

  /** Releases all locks and queued requests, even in a cancelled workflow. withLocks calls it. */
  async release(): Promise<void> {
    this.ended = true;
    if (this.asked.size === 0) return;
    await CancellationScope.nonCancellable(() =>
      this.activities()['lockstep.Release']({ resources: [...this.asked], schedule }));
  }

  // An abandoned branch must neither lock nor wait after the end of work.
  private checkNotEnded(): void {
    if (this.ended) throw ApplicationFailure.nonRetryable('withLocks has ended', 'lockstep.Ended');
  }

  /** Waits until the busy resource is granted. */
  private async wait(resources: Resource[], busy: Busy, order: { schedule: number; attempt: number }, vain: number): Promise<void> {
    const wait = this.activities({ activityId: `lockstep-wait-${order.schedule}`, summary: `waits for ${busy.resource}` });
    await wait['lockstep.Wait']({
      resource: resources.find((r) => r.name === busy.resource), order, started: this.started, maxWait: this.options.maxWait,
      full: busy.full ? busy.waiting : undefined, vain,
    }).catch((err: unknown) => { throw typed(err); });
  }

  private activities(more: ActivityOptions = {}): LockActivities {
    return proxyActivities<LockActivities>({
      taskQueue: this.options.taskQueue ?? 'lockstep', startToCloseTimeout: '10s', ...more,
    });
  }
}

/** The failure of an activity as acquire and verify throw it. */
function typed(err: unknown): unknown {
  const cause = failureOf(err);
  if (cause?.type === DEADLOCK) return cause;
  return cause?.type === LostError.TYPE ? new LostError(cause.details?.[0] as Lost, cause.message, err as Error) : err;
}

/** The details of a 'lockstep.Busy', or undefined. */
export function busyOf(err: unknown): Busy | undefined { return detailsOf(err, 'lockstep.Busy'); }

function parkedOf(err: unknown): Busy | undefined { return detailsOf(err, 'lockstep.Parked'); }

function detailsOf(err: unknown, type: string): Busy | undefined {
  const cause = failureOf(err);
  return cause?.type === type ? (cause.details?.[0] as Busy) : undefined;
}

/** The failure with which an activity has failed, or undefined. */
function failureOf(err: unknown): ApplicationFailure | undefined {
  const cause = err instanceof ActivityFailure ? err.cause : undefined;
  return cause instanceof ApplicationFailure ? cause : undefined;
}
