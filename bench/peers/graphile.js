// graphile-worker, tuned: jobs are fetched 500 at a time, completions are written in batches, the poll is every 500 ms.
//
//   node graphile.js install | fill COUNT [START RATE] | work
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { Pool } from 'undici';

const { RECEIVER, DSN, IN_FLIGHT } = process.env;
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message); });

async function work() {
  const receiver = new Pool(RECEIVER, { connections: +IN_FLIGHT, pipelining: 1 });
  const text = JSON.stringify({ event: 'reminder.due', text: '' });
  const body = JSON.stringify({ event: 'reminder.due', text: 'x'.repeat(200 - text.length) });
  const headers = { 'content-type': 'application/json' };
  const post = async ({ number, due }) => {
    const answer = await receiver.request({ path: due ? `/j/${number}/${due}` : `/j/${number}`, method: 'POST', headers, body });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`got ${answer.statusCode}`);
  };
  const worker = {
    connectionString: DSN, concurrentJobs: +IN_FLIGHT, maxPoolSize: 10, pollInterval: 500,
    localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0, logger,
  };
  await (await run({ preset: { worker }, logger, taskList: { post } })).promise;
}

async function fill(utils, count, start, rate) {
  const job = (number) => {
    const due = rate ? Math.round(start * 1e6 + number * 1e6 / rate) : 0;
    return { identifier: 'post', payload: { number, due }, ...(due ? { runAt: new Date(due / 1000) } : {}) };
  };
  const began = performance.now();
  for (let from = 0; from < count; from += 1000) {
    await utils.addJobs(Array.from({ length: Math.min(1000, count - from) }, (_, step) => job(from + step)));
  }
  console.log((performance.now() - began) / 1000);
}

const [command, ...numbers] = process.argv.slice(2);
if (command === 'work') {
  await work();
} else {
  const utils = await makeWorkerUtils({ connectionString: DSN, logger, maxPoolSize: 10 });
  await utils.migrate();
  if (command === 'fill') await fill(utils, ...numbers.map(Number));
  await utils.release();
}
