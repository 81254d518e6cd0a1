// Real parts: a Temporal server, a database, `lockstep worker` as its own process, and the TypeScript SDK's worker.
import assert from 'node:assert/strict';
import { ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { ActivityFailure, ApplicationFailure, Client, Connection, WorkflowFailedError, WorkflowHandle } from '@temporalio/client';
import { CancelledFailure } from '@temporalio/common';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { makeActivities } from './activities';
import { Busy, Lost } from './lockstep';
import { audit, giveUp, hold, holdAgain, holdAndContinue, holdAndLose, impatient, letGo, transfer } from './workflows';

const address = variable('TEMPORAL_ADDRESS');
const mongo = variable('LOCKSTEP_MONGODB_URI');
const run = `typescript-${process.pid}-${Date.now()}`;
const locks = { taskQueue: `${run}-locks` };
const database = `lockstep_${run.replaceAll('-', '_')}`;
const accounts = new Map([['alice', 1000], ['bob', 1000], ['carol', 1000]]);

let client: Client, connection: Connection, native: NativeConnection, worker: Worker, running: Promise<void>;
let lockstep: ChildProcess, folder: string, binary: string;

function variable(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: eval "$(make -s stack-env)" sets it to the local stack`);
  return value;
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lockstep-'));
  binary = join(folder, 'lockstep');
  execFileSync('go', ['build', '-o', binary, './cmd/lockstep'], { cwd: resolve(__dirname, '../../..'), stdio: 'inherit' });
  lockstep = spawn(binary, ['worker', '--temporal-address', address, '--task-queue', locks.taskQueue,
    '--database', database], { stdio: ['ignore', 'inherit', 'inherit'], env: { ...process.env, LOCKSTEP_MONGODB_URI: mongo } });
  Runtime.install({ logger: new DefaultLogger('ERROR'), shutdownSignals: [] });
  native = await NativeConnection.connect({ address });
  connection = await Connection.connect({ address });
  client = new Client({ connection });
  worker = await Worker.create({
    connection: native, taskQueue: run, workflowsPath: require.resolve('./workflows'), activities: makeActivities(accounts),
    maxCachedWorkflows: 0, // so that each task replays the workflow from its history
  });
  running = worker.run();
});

after(async () => {
  worker?.shutdown();
  await running;
  await connection?.close();
  await native?.close();
  if (lockstep?.exitCode === null && lockstep.kill('SIGTERM')) await once(lockstep, 'exit');
  rmSync(folder, { recursive: true });
});

function start<F extends (...args: any[]) => Promise<any>>(workflow: F, name: string, ...args: Parameters<F>): Promise<WorkflowHandle<F>> {
  return client.workflow.start<F>(workflow, { taskQueue: run, workflowId: `${run}-${name}`, args } as never);
}

/** Waits until a pending activity of the workflow waits for a lock, and returns its failure message. */
async function waiting(handle: WorkflowHandle<any>): Promise<string> {
  for (;;) {
    const { raw } = await handle.describe();
    const wait = raw.pendingActivities?.find((a) => a.activityType?.name === 'lockstep.Wait' && a.lastFailure);
    if (wait) return wait.lastFailure!.message!;
    assert.equal(raw.workflowExecutionInfo?.closeTime ?? null, null, 'it ended instead of waiting');
    await setTimeout(50);
  }
}

/** Waits until an activity of the workflow has completed. */
async function completed(handle: WorkflowHandle<any>, activityType: string): Promise<void> {
  for (;;) {
    const { events } = await handle.fetchHistory();
    const scheduled = events!.filter((e) => e.activityTaskScheduledEventAttributes?.activityType?.name === activityType).map((e) => String(e.eventId));
    if (events!.some((e) => scheduled.includes(String(e.activityTaskCompletedEventAttributes?.scheduledEventId)))) return;
    await setTimeout(50);
  }
}

/** The types of the activities that a workflow has scheduled, in their order. */
async function activitiesOf(handle: WorkflowHandle<any>): Promise<string[]> {
  return (await handle.fetchHistory()).events!.flatMap((e) => e.activityTaskScheduledEventAttributes?.activityType?.name ?? []);
}

/** Releases a workflow's lock as an operator does. */
function releaseByForce(resource: string, handle: WorkflowHandle<any>, reason: string): void {
  execFileSync(binary, ['release', resource, handle.workflowId, '--now', '--yes', '--reason', reason, '--temporal-address', address, '--database', database],
    { env: { ...process.env, LOCKSTEP_MONGODB_URI: mongo } });
}

/** The details with which a workflow has failed because it had lost a lock. */
function lossOf(err: any): Lost {
  assert.ok(err instanceof WorkflowFailedError && err.cause instanceof ApplicationFailure, String(err));
  assert.equal(err.cause.type, 'lockstep.Lost', String(err.cause));
  return err.cause.details![0] as Lost;
}

const holding = (handle: WorkflowHandle<any>) => completed(handle, 'lockstep.Acquire');

test('transfers that lock account by account lose no money, deadlocks and all', async () => {
  const names = [...accounts.keys()];
  const transfers = await Promise.all(Array.from({ length: 9 }, (_, i) =>
    start(transfer, `transfer-${i}`, { from: names[i % 3]!, to: names[(i + 1 + (i % 2)) % 3]!, amount: 10 + i }, locks)));
  const auditor = await start(audit, 'audit', names, locks);
  await Promise.all(transfers.map((t) => t.result()));
  assert.equal(await auditor.result(), 3000);
  assert.equal([...accounts.values()].reduce((a, b) => a + b), 3000);
});

test('a saga that fails gives back while it holds its locks', async () => {
  const before = new Map(accounts);
  const saga = await start(transfer, 'too-much', { from: 'alice', to: 'nobody', amount: 100_000 }, locks);
  const err = await saga.result().then(() => assert.fail('alice had enough'), (e) => e);
  assert.ok(err instanceof WorkflowFailedError && err.cause instanceof ActivityFailure && err.cause.cause instanceof ApplicationFailure, String(err));
  assert.equal(err.cause.cause.type, 'InsufficientFunds');
  assert.deepEqual(accounts, before);
  const steps = (await saga.fetchHistory()).events!.flatMap((e) => e.activityTaskScheduledEventAttributes ?? []);
  assert.deepEqual(steps.map((s) => s.activityType!.name), ['lockstep.Acquire', 'debit', 'undo', 'lockstep.Release']);
  const request = JSON.parse(Buffer.from(steps[0]!.input!.payloads![0]!.data!).toString());
  assert.equal(request.schedule, 1, 'each run numbers its own requests');
});

test('a waiter names the holder, gets the lock next with a greater fence, and has a short history', async () => {
  const first = await start(hold, 'first', { name: 'gate' }, locks);
  await holding(first);
  const second = await start(hold, 'second', { name: 'gate' }, locks);
  const message = await waiting(second);
  assert.match(message, /gate/);
  assert.ok(message.includes(first.workflowId), message);
  await first.signal(letGo);
  const fence = await first.result();
  await second.signal(letGo);
  assert.ok((await second.result()) > fence);
  // Acquire, wait, acquire, verify, release: 3 events each, and workflow tasks between them.
  assert.ok((await second.fetchHistory()).events!.length <= 41);
});

test('a wait that times out names the holder', async () => {
  const first = await start(hold, 'holder', { name: 'door' }, locks);
  await holding(first);
  const second = await start(hold, 'impatient', { name: 'door' }, { ...locks, maxWait: '1s' });
  const err = await second.result().then(() => assert.fail('it got the lock'), (e) => e);
  assert.ok(err instanceof WorkflowFailedError && err.cause instanceof ActivityFailure && err.cause.cause instanceof ApplicationFailure, String(err));
  assert.equal(err.cause.cause.type, 'lockstep.Busy');
  const busy = err.cause.cause.details![0] as Busy;
  assert.ok(busy.holders![0]!.owner.endsWith('/' + first.workflowId), busy.holders![0]!.owner);
  await first.signal(letGo);
  await first.result();
});

test('a lock that another workflow has had in between is lost', async () => {
  const first = await start(holdAgain, 'late', { name: 'tower' }, { ...locks, holdTtl: '1s' });
  await holding(first);
  const second = await start(hold, 'between', { name: 'tower' }, locks); // gets the lock when it has expired
  await second.signal(letGo);
  await second.result();
  await first.signal(letGo);
  const err = await first.result().then(() => assert.fail('it acquired the lock again'), (e) => e);
  assert.equal(lossOf(err).resource, 'tower');
  const acquires = (await first.fetchHistory()).events!.flatMap((e) => e.activityTaskScheduledEventAttributes ?? [])
    .filter((a) => a.activityType!.name === 'lockstep.Acquire')
    .map((a) => JSON.parse(Buffer.from(a.input!.payloads![0]!.data!).toString()).resources[0].heldSince);
  assert.deepEqual(acquires, [undefined, 1], 'a request names the first schedule under which the lock was held');
});

test('a lock that was released by force is lost at the end of the work, and named with the reason', async () => {
  const first = await start(hold, 'robbed', { name: 'safe' }, locks);
  await holding(first);
  releaseByForce('safe', first, 'a drill');
  await first.signal(letGo);
  const err = await first.result().then(() => assert.fail('the loss passed unnoticed'), (e) => e);
  const lost = lossOf(err);
  assert.equal(lost.resource, 'safe');
  assert.match(lost.reason!, /a drill/);
  assert.match(err.cause.message, /safe/);
  assert.deepEqual(await activitiesOf(first), ['lockstep.Acquire', 'lockstep.Verify', 'lockstep.Release']);
});

test('a lock that expired and went to another workflow is lost at the end of the work', async () => {
  const first = await start(holdAndLose, 'expired', { name: 'tent' }, { ...locks, holdTtl: '1s' });
  await holding(first);
  const second = await start(hold, 'successor', { name: 'tent' }, locks); // gets the lock when it has expired
  await holding(second);
  await first.signal(letGo);
  const lost = await first.result() as Lost;
  assert.equal(lost.resource, 'tent');
  assert.ok(lost.by!.endsWith('/' + second.workflowId), lost.by);
  await second.signal(letGo);
  await second.result(); // the loser has released nothing of it
});

test('a run that has lost a lock does not continue as new', async () => {
  const first = await start(holdAndContinue, 'in-runs', { name: 'ship' }, locks);
  await holding(first);
  releaseByForce('ship', first, 'a drill');
  await first.signal(letGo);
  const err = await first.result().then(() => assert.fail('the loss passed unnoticed'), (e) => e);
  assert.equal(lossOf(err).resource, 'ship');
  assert.deepEqual(await activitiesOf(first), ['lockstep.Acquire', 'lockstep.Verify', 'lockstep.Release']);
});

test('a transfer that has lost a lock undoes all of its steps', async () => {
  const before = new Map(accounts);
  const gate = await start(hold, 'gate-keeper', { name: 'account/bob' }, locks);
  await holding(gate);
  const saga = await start(transfer, 'careless', { from: 'alice', to: 'bob', amount: 7 }, locks);
  await waiting(saga); // it has debited alice
  releaseByForce('account/alice', saga, 'a drill');
  await gate.signal(letGo);
  const err = await saga.result().then(() => assert.fail('the loss passed unnoticed'), (e) => e);
  assert.equal(lossOf(err).resource, 'account/alice');
  assert.deepEqual(accounts, before);
  assert.deepEqual((await activitiesOf(saga)).slice(-4), ['credit', 'lockstep.Verify', 'undo', 'lockstep.Release']);
});

test('a cancelled workflow leaves the queue, or releases its lock', async () => {
  const first = await start(hold, 'cancelled-holder', { name: 'bridge' }, locks);
  await holding(first);
  const second = await start(hold, 'cancelled-waiter', { name: 'bridge' }, locks);
  await waiting(second);
  const third = await start(hold, 'next', { name: 'bridge' }, locks);
  await waiting(third);
  for (const handle of [second, first]) {
    await handle.cancel();
    const err = await handle.result().then(() => assert.fail('it was not cancelled'), (e) => e);
    assert.ok(err instanceof WorkflowFailedError && err.cause instanceof CancelledFailure, String(err));
  }
  await third.signal(letGo);
  assert.ok((await third.result()) > 0);
});

test('an abandoned branch locks nothing', async () => {
  const first = await start(hold, 'slow', { name: 'lane' }, locks);
  await holding(first);
  const second = await start(impatient, 'gave-up', { name: 'lane' }, locks);
  await waiting(second);
  await second.signal(giveUp);
  await completed(second, 'lockstep.Release');
  await first.signal(letGo);
  await first.result();
  await completed(second, 'lockstep.Wait'); // notices within 20 s that it is no longer queued
  await second.signal(letGo);
  await second.result();
  assert.deepEqual(await activitiesOf(second), ['lockstep.Acquire', 'lockstep.Wait', 'lockstep.Release']);
});
