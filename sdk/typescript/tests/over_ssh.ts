// A program that works on a machine behind ssh while somebody kills: run by `typescript.rs`, which is asked to kill over stdio.

import assert from "node:assert/strict";
import { createInterface } from "node:readline/promises";
import { connect } from "exec-server";

const COUNT = "i=0; while read go; do n=0; while [ $n -lt 1000 ]; do i=$((i+1)); n=$((n+1)); echo line $i; done; done; echo end; exit 9";
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Returns when it was killed. */
async function ask(what: string): Promise<void> {
  console.log(what);
  assert.equal((await answers.next()).value, "done");
}

async function main(url: string): Promise<void> {
  await using env = await connect(url);
  assert.equal((await env.run("echo hello; exit 3")).stdout, "hello\n");
  await using counter = await env.spawn(COUNT, { stdin: true });
  let seen = "";
  const events = counter.events();
  for (const victim of ["ssh", "server", "ssh"]) {
    await counter.stdin.write("go\n");
    // In the middle of what it prints: some of it was read, and some was not.
    seen += (await events.next()).value!.text;
    await ask(victim);
  }
  await counter.stdin.close();
  for await (const event of events) seen += event.text;
  const lines = Array.from({ length: 3000 }, (_, number) => `line ${number + 1}\n`);
  assert.equal(seen, `${lines.join("")}end\n`);
  assert.equal((await counter.wait()).code, 9);
  assert.equal((await counter.result()).stdout, seen);
  await env.end();
  console.log("all");
  process.stdin.destroy();
}

main(process.argv[2]!).catch((error) => {
  console.error(error);
  process.exit(1);
});
