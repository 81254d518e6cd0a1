// Runs transfers between three accounts, all at once and with auditors, and reports whether money was lost.
import { Client, Connection } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { makeActivities } from './activities';
import { audit, transfer } from './workflows';

const address = process.env['TEMPORAL_ADDRESS'] ?? 'localhost:7233';
const names = ['alice', 'bob', 'carol'];
const OPENING = 1000;

async function main(): Promise<number> {
  Runtime.install({ logger: new DefaultLogger('WARN') });
  const taskQueue = `lockstep-example-typescript-${Date.now()}`;
  const accounts = new Map(names.map((name) => [name, OPENING]));
  const native = await NativeConnection.connect({ address });
  const connection = await Connection.connect({ address });
  try {
    const worker = await Worker.create({
      connection: native, taskQueue, workflowsPath: require.resolve('./workflows'), activities: makeActivities(accounts),
    });
    const client = new Client({ connection });
    return await worker.runUntil(async () => {
      const transfers = Array.from({ length: 12 }, (_, i) => client.workflow.execute(transfer, {
        taskQueue, workflowId: `${taskQueue}-transfer-${i}`,
        args: [{ from: names[i % 3]!, to: names[(i + 1 + (i % 2)) % 3]!, amount: 10 + i }],
      }));
      const audits = Array.from({ length: 3 }, (_, i) => client.workflow.execute(audit, {
        taskQueue, workflowId: `${taskQueue}-audit-${i}`, args: [names],
      }));
      await Promise.all(transfers);
      const sums = await Promise.all(audits);
      const left = [...accounts.values()].reduce((a, b) => a + b);
      console.log(`${transfers.length} transfers; ${OPENING * names.length} paid in, audits saw ${sums.join(', ')}, left ${left}`);
      return [...sums, left].every((sum) => sum === OPENING * names.length) ? 0 : 1;
    });
  } finally {
    await connection.close();
    await native.close();
  }
}

main().then((code) => { process.exitCode = code; }, (err) => {
  console.error(err);
  process.exitCode = 1;
});
