// How fast output comes to Node, and how long it keeps the event loop busy: prints one line of JSON.

import { readFileSync } from "node:fs";
import { connect } from "exec-server";

const [url, count] = [process.argv[2], Number(process.argv[3])];

/** How long this thread has run on a processor, in milliseconds. */
function threadTime() {
  return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ")[0]) / 1e6;
}

async function flood(beside) {
  const env = await connect(url);
  let [total, worst, over] = [0, 0, false];
  const beating = (async () => {
    while (beside && !over) {
      const before = threadTime();
      await new Promise((next) => setImmediate(next));
      worst = Math.max(worst, threadTime() - before);
    }
  })();
  const begun = performance.now();
  const process = await env.spawn(`head -c ${count} /dev/zero`);
  for await (const event of process) total += event.data.length;
  const seconds = (performance.now() - begun) / 1000;
  over = true;
  await beating;
  if (total !== count) throw new Error(`${total} bytes came`);
  await env.end();
  return [seconds, worst];
}

const [seconds] = await flood(false);
const [, worst] = await flood(true);
console.log(JSON.stringify({ async: seconds, "worst async": worst }));
