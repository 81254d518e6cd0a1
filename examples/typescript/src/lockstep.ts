// Lockstep's lock activities, for workflow code: by name and JSON, as docs/activities.md has them. `lockstep worker`
// serves them on a task queue of its own. Copy this file into your project.
import {
  ActivityFailure, ActivityOptions, ApplicationFailure, CancellationScope, proxyActivities, workflowInfo,
} from '@temporalio/workflow';

/** A resource and how it is locked: 'X' alone, 'S' together with others, 'S' with a limit as a semaphore. */
export interface Resource { name: string; mode?: 'X' | 'S'; limit?: number }

/** What was granted. A resource that compares fences refuses writers whose lock has gone to somebody else since. */
export interface Lease { resource: string; lockId: string; mode: 'X' | 'S'; fence: number; joined?: boolean }

/** Who has a lock. */
export interface Holder { lockId: string; owner: string; mode: 'X' | 'S'; fence: number; expiresIn?: string }

/** The details of failures of the types 'lockstep.Busy' and 'lockstep.Parked'. */
export interface Busy {
  resource: string; lockId: string; position?: number; waiting?: number; full?: boolean; holders?: Holder[]; attempt?: number; unavailable?: boolean;
}

export interface LocksOptions {
  /** The task queue that `lockstep worker` serves. Defaults to 'lockstep'. */
  taskQueue?: string;
  /** How long the locks stand with no sign of life of the workflow, such as '10m', which is the default. */
  holdTtl?: string;
  /** How long to wait for one resource, such as '5m'. Then it fails with 'lockstep.Busy'. Defaults to no bound. */
  maxWait?: string;
}

/** The type of the failure of a workflow that was chosen to end a deadlock. */
export const DEADLOCK = 'lockstep.Deadlock';

/** How often work is begun at most, where it is chosen to end deadlocks. */
const ROUNDS = 20;

interface LockActivities {
  'lockstep.Acquire'(params: object): Promise<{ lockId: string; leases: Lease[] }>;
  'lockstep.Wait'(params: object): Promise<void>;
  'lockstep.Release'(params: object): Promise<object>;
}

/**
 * Runs work, and releases what it has locked when it has ended, whatever way: also when the workflow is cancelled. Where it is
 * chosen to end a deadlock it begins anew, when the others have been let through. So work undoes what it has done before it throws,
 * while the locks are held. One call in a workflow at a time, unless the resources differ.
 */
export async function withLocks<T>(options: LocksOptions, work: (locks: Locks, round: number) => Promise<T>): Promise<T> {
  for (let round = 1; ; round++) {
    const locks = new Locks(options);
    try {
      return await work(locks, round);
    } catch (err) {
      if (round === ROUNDS || !(err instanceof ApplicationFailure && err.type === DEADLOCK)) throw err;
    } finally {
      await locks.release();
    }
  }
}

// Numbers all that the run asks for: a copy of a request that comes after a later release locks nothing. Each workflow run has
// its own, since the SDK gives each a module state of its own.
let schedule = 0;

/** What one withLocks holds. */
export class Locks {
  private readonly asked = new Set<string>();
  private readonly held = new Set<string>();
  private released = false;
  private readonly started = workflowInfo().startTime; // of those in a deadlock the one that began last gives up

  constructor(private readonly options: LocksOptions) {}

  /**
   * Takes locks, beside those that are held already, and waits for its turn, first come, first served. Waiting takes no
   * worker's slot, and adds no event however long it is. Fails with an ActivityFailure whose cause is an ApplicationFailure of type
   * 'lockstep.Busy' (maxWait is over), 'lockstep.Lost' (held before, and others were in between: compensate), or
   * 'lockstep.Invalid'; and with an ApplicationFailure of type DEADLOCK. Where the workflow is cancelled, with what
   * Temporal throws then.
   */
  async acquire(...resources: Resource[]): Promise<Lease[]> {
    for (const r of resources) this.asked.add(r.name);
    for (let vain = 0; ;) {
      this.mustGoOn();
      const order = { schedule: ++schedule, attempt: 1 };
      try {
        const { leases } = await this.activities()['lockstep.Acquire']({
          resources: resources.map((r) => ({ ...r, held: this.held.has(r.name) })),
          schedule: order.schedule, holdTtl: this.options.holdTtl ?? '10m', holdOnly: true, park: true, started: this.started,
        });
        for (const r of resources) this.held.add(r.name);
        return leases;
      } catch (err) {
        const deadlock = deadlockOf(err);
        if (deadlock) throw deadlock;
        const busy = parkedOf(err);
        if (!busy) throw err;
        this.mustGoOn();
        vain = busy.full || busy.unavailable ? vain + 1 : 0; // no place in a queue
        await this.turn(resources, busy, { ...order, attempt: busy.attempt ?? 1 }, vain);
      }
    }
  }

  /** Gives back all locks and places in queues, for good, also in a workflow that is being cancelled. withLocks does it. */
  async release(): Promise<void> {
    this.released = true;
    if (this.asked.size === 0) return;
    await CancellationScope.nonCancellable(() =>
      this.activities()['lockstep.Release']({ resources: [...this.asked], schedule }));
  }

  // A branch that nobody waits for any more must neither lock nor wait when all has been let go.
  private mustGoOn(): void {
    if (this.released) throw ApplicationFailure.nonRetryable('withLocks has ended', 'lockstep.Ended');
  }

  /** Waits until what busy tells of is granted. */
  private async turn(resources: Resource[], busy: Busy, order: { schedule: number; attempt: number }, vain: number): Promise<void> {
    const wait = this.activities({ activityId: `lockstep-wait-${order.schedule}`, summary: `waits for ${busy.resource}` });
    await wait['lockstep.Wait']({
      resource: resources.find((r) => r.name === busy.resource), order, started: this.started, maxWait: this.options.maxWait,
      full: busy.full ? busy.waiting : undefined, vain,
    }).catch((err: unknown) => { throw deadlockOf(err) ?? err; });
  }

  private activities(more: ActivityOptions = {}): LockActivities {
    return proxyActivities<LockActivities>({
      taskQueue: this.options.taskQueue ?? 'lockstep', startToCloseTimeout: '10s', ...more,
    });
  }
}

/** The failure of an activity whose request was given up to end a deadlock, and undefined for any other. */
function deadlockOf(err: unknown): ApplicationFailure | undefined {
  const cause = err instanceof ActivityFailure ? err.cause : undefined;
  return cause instanceof ApplicationFailure && cause.type === DEADLOCK ? cause : undefined;
}

/** What a 'lockstep.Busy' says, and undefined for any other failure. */
export function busyOf(err: unknown): Busy | undefined { return detailsOf(err, 'lockstep.Busy'); }

function parkedOf(err: unknown): Busy | undefined { return detailsOf(err, 'lockstep.Parked'); }

function detailsOf(err: unknown, type: string): Busy | undefined {
  const cause = err instanceof ActivityFailure ? err.cause : undefined;
  return cause instanceof ApplicationFailure && cause.type === type ? (cause.details?.[0] as Busy) : undefined;
}
