// What only Node can get wrong: the end of a program, workers, its one thread, two ways to load, streams, names that are no text.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { test } from "node:test";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import * as sdk from "exec-server";

const run = promisify(execFile);
const URL = process.env["EXEC_SERVER_TEST_URL"]!;

/** Runs a program of its own, inside of the package, whose name is known there. */
function program(text: string): Promise<{ stdout: string; stderr: string }> {
  return run(process.execPath, ["--input-type=commonjs", "-e", text], { cwd: __dirname, timeout: 100_000 });
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** How long this thread has run on a processor. The main thread has the number of its process. */
function threadMilliseconds(): number {
  const [nanoseconds] = readFileSync(`/proc/self/task/${process.pid}/schedstat`, "utf8").split(" ");
  return Number(nanoseconds) / 1e6;
}

async function inTemporary(work: (directory: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), "exec-server-"));
  try {
    await work(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test("import and require give the same classes", async () => {
  const required = createRequire(__filename)("exec-server");
  const imported = await import("exec-server");
  for (const name of Object.keys(required)) assert.equal((imported as Record<string, unknown>)[name], required[name], name);
  assert(Object.keys(required).length > 20);
});

test("what runs at the end of the program ends with it", async () => {
  const spawn = 'require("exec-server").local().then(async (env) => console.log((await env.spawn(["sleep", "1000"])).pid))';
  for (const text of [spawn, `${spawn}.then(() => process.exit(0))`]) {
    const { stdout } = await program(text);
    assert(!isRunning(Number(stdout)), stdout);
  }
});

test("an environment that is not closed does not keep the program", async () => {
  const { stdout } = await program(`require("exec-server").connect("${URL}").then(async (e) => console.log((await e.run("echo x")).stdout))`);
  assert.equal(stdout, "x\n\n");
});

test("a call that is under way keeps the program", async () => {
  const { stdout } = await program('require("exec-server").local().then((e) => e.run("sleep 0.3; echo late")).then((r) => console.log(r.stdout))');
  assert.equal(stdout, "late\n\n");
});

test("a program that ends in the middle of calls does not crash", async () => {
  const text = 'require("exec-server").local().then((e) => { for (let i = 0; i < 20; i++) e.run("sleep 0.0" + i); setTimeout(() => process.exit(7), 50); })';
  for (let i = 0; i < 5; i++) await assert.rejects(program(text), { code: 7 });
});

test("workers have environments of their own, and may be terminated", async () => {
  const text = `const { parentPort } = require("node:worker_threads");
    require("exec-server").local().then(async (env) => {
      parentPort.postMessage((await env.run("echo from a worker")).stdout);
      await env.run("sleep 1000");
    });`;
  const file = join(__dirname, "worker.js");
  writeFileSync(file, text);
  const workers = Array.from({ length: 4 }, () => new Worker(file));
  const said = await Promise.all(workers.map((worker) => new Promise((told, failed) => worker.once("message", told).once("error", failed))));
  assert.deepEqual(said, Array(4).fill("from a worker\n"));
  await Promise.all(workers.map((worker) => worker.terminate()));
});

/** The longest turn of the event loop while a flood is read, in milliseconds of processor time. */
async function longestTurn(): Promise<number> {
  await using env = await sdk.connect(URL);
  let [total, worst, over] = [0, 0, false];
  const beating = (async () => {
    while (!over) {
      // Processor time of this thread, not the clock's: the machine may be busy with something else.
      const before = threadMilliseconds();
      await new Promise((next) => setImmediate(next));
      worst = Math.max(worst, threadMilliseconds() - before);
    }
  })();
  await using flood = await env.spawn("head -c 50000000 /dev/zero");
  for await (const event of flood) total += event.data.length;
  over = true;
  await beating;
  assert.equal(total, 50_000_000);
  await env.end();
  return worst;
}

test("a flood does not block the event loop", async () => {
  // What blocks the loop blocks it every time; a machine that is taken away for some milliseconds, which is counted as time of
  // ours, does so now and then, and often while other tests run.
  const turns = [await longestTurn()];
  while (Math.min(...turns) >= 5 && turns.length < 12) turns.push(await longestTurn());
  assert(Math.min(...turns) < 5, `the longest turns of the event loop took ${turns} ms`);
});

test("breaking off a read lets the process go on", async () => {
  await using env = await sdk.connect(URL);
  await using flood = await env.spawn("head -c 100000000 /dev/zero; echo end >&2");
  for await (const _ of flood) break;
  const whole = await flood.result();
  assert.equal(whole.stderr, "end\n");
  await env.end();
});

test("streams of Node can be piped through a process", async () => {
  await using env = await sdk.local();
  await using process = await env.spawn("tr a-z A-Z", { stdin: true });
  const pieces: Buffer[] = [];
  await Promise.all([
    pipeline(Readable.from([Buffer.from("some "), Buffer.from("text")]), process.stdin.writable()),
    (async () => {
      for await (const piece of process.readable("stdout")) pieces.push(piece);
    })(),
  ]);
  assert.equal(Buffer.concat(pieces).toString(), "SOME TEXT");
});

test("a path that is no text comes back as it was", async () => {
  await inTemporary(async (directory) => {
    await using env = await sdk.local();
    const path = Buffer.concat([Buffer.from(`${directory}/`), Buffer.from([0xff, 0x61, 0xfe])]);
    await env.files.write(path, "x");
    const [entry] = await env.files.list(directory);
    assert.equal(entry!.name, "\udcffa\udcfe");
    assert.equal(await env.files.readText(entry!.path), "x");
    assert.deepEqual(readdirSync(directory, { encoding: "buffer" }), [Buffer.from([0xff, 0x61, 0xfe])]);
    assert.equal((await env.run(["cat", entry!.path])).stdout, "x");
  });
});

test("bytes of every kind are data", async () => {
  await using env = await sdk.local();
  for (const input of ["ab", Buffer.from("ab"), new Uint8Array([97, 98]), new Uint8Array([97, 98]).buffer]) {
    assert.equal((await env.run("cat", { input })).stdout, "ab");
  }
  const part = new Uint8Array([1, 97, 98, 2]).subarray(1, 3);
  assert.equal((await env.run("cat", { input: part })).stdout, "ab");
  for (const progress of [false, true]) {
    for (const input of ["", null, undefined]) assert.equal((await env.run("cat", { input, progress })).stdout, "");
  }
});

test("an abort keeps the reason, and one that came before costs nothing", async () => {
  await using env = await sdk.local();
  const reason = new Error("enough");
  await assert.rejects(env.run("sleep 1000", { signal: AbortSignal.abort(reason) }), (error: sdk.AbortError) => {
    return error instanceof sdk.AbortError && error.name === "AbortError" && error.cause === reason;
  });
  assert.deepEqual(await env.processes(), []);
});

test("a watch that is closed ends its loop", async () => {
  await inTemporary(async (directory) => {
    await using env = await sdk.local();
    const watch = await env.files.watch(directory);
    const loop = (async () => {
      const seen: string[] = [];
      for await (const change of watch) seen.push(change.path);
      return seen;
    })();
    await new Promise((next) => setImmediate(next));
    watch.close();
    assert.deepEqual(await loop, []);
  });
});

test("what is closed before anything is read of it is let go of", async () => {
  for (const open of [() => sdk.local(), () => sdk.connect(URL)]) {
    await using env = await open();
    let letGo = () => {};
    const ended = new Promise<void>((done) => (letGo = done));
    const server = createServer((_request, response) => {
      response.once("close", letGo);
      response.write("a body without an end");
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    const response = await env.http.stream("GET", `http://127.0.0.1:${port}/`);
    response.close();
    await ended;
    server.close();
    const watch = await env.files.watch(".");
    watch.close();
    assert.deepEqual(await watch.next(), { done: true, value: undefined });
  }
});

test("what cannot be opened is at its end", async () => {
  await using env = await sdk.local();
  const matches = env.files.search("(");
  await assert.rejects(matches.next());
  assert.deepEqual(await matches.next(), { done: true, value: undefined });
});

test("what is waiting for output ends when it is left", async () => {
  await using env = await sdk.local();
  await using process = await env.spawn("sleep 1000");
  const lines = process.lines();
  const next = lines.next();
  await lines.return(undefined);
  assert.deepEqual(await next, { done: true, value: undefined });

  const readable = process.readable();
  const closed = new Promise((done) => readable.once("close", done));
  readable.resume();
  await new Promise((next) => setImmediate(next));
  readable.destroy();
  await closed;
});

test("items that are asked for at once come one after the other", async () => {
  await using env = await sdk.local();
  await using process = await env.spawn("seq 3");
  await process.wait();
  const lines = process.lines();
  const items = await Promise.all([lines.next(), lines.next(), lines.next(), lines.next()]);
  assert.deepEqual(items.map(({ value }) => value), ["1", "2", "3", undefined]);
});

for (const progress of [false, true]) {
  test(`closing an environment ends what is under way there, and a run ${progress ? "that is shown" : "that is not shown"}`, async () => {
    await inTemporary(async (directory) => {
      for (const open of [() => sdk.local(), () => sdk.connect(URL)]) {
        const env = await open();
        const process = await env.spawn("sleep 1000");
        const { sessionId } = await env.info();
        const watch = await env.files.watch(directory);
        const underWay = [watch.next(), process.wait(), process.lines().next(), env.run("sleep 1000", { progress })];
        const ended = Promise.allSettled(underWay);
        while ((await env.processes()).length < 2);
        await env.close();
        for (const end of await ended) assert(end.status === "rejected" && end.reason instanceof sdk.ClosedError, String(end.status));
        if (sessionId === null) continue;
        // Closing leaves what was spawned, and ends what was run.
        const again = await sdk.connect(URL, { session: sessionId });
        assert.deepEqual((await again.processes()).map(({ id }) => id), [process.id]);
        await again.end();
      }
    });
  });
}

test("the block of a process can be left after its environment was closed", async () => {
  for (const open of [() => sdk.local(), () => sdk.connect(URL)]) {
    await using env = await open();
    await using _process = await env.spawn("sleep 1000");
    await env.end();
  }
});

test("progress changes nothing but what is shown", async () => {
  await using env = await sdk.local();
  const late = env.run("echo some; sleep 1000", { timeoutMs: 300, progress: true });
  await assert.rejects(late, (error: sdk.TimeoutError) => error instanceof sdk.TimeoutError && error.result?.stdout === "some\n");
  assert.equal((await env.run("head -n 1", { input: "a\n".repeat(100_000), progress: true })).stdout, "a\n");
});

test("what is no text and no bytes is refused by what it is", async () => {
  await using env = await sdk.local();
  await assert.rejects(env.files.write("/tmp/never", 5 as never), /data must be text or bytes, not number/);
  await assert.rejects(env.run(["echo", 5 as never]), /text or bytes, not number/);
  await assert.rejects(env.run(undefined as never), /a command is a line for the shell, or a list/);
  await inTemporary(async (cwd) => {
    for (const progress of [false, true]) {
      for (const input of [5, 0, {}, ["a"]]) {
        await assert.rejects(env.run("touch started; cat", { cwd, input: input as never, progress }), /data must be text or bytes, not/);
      }
    }
    assert.deepEqual(readdirSync(cwd), []);
  });
});

test("errors are those that people look at", async () => {
  await using env = await sdk.local();
  await assert.rejects(env.files.read("/no/such/file"), { code: "ENOENT", errno: -2, path: "/no/such/file", name: "OsError" });
  await assert.rejects(env.run("echo no >&2; exit 3", { check: true }), (error: sdk.ExitError) => error.result.exitCode === 3 && /no/.test(error.message));
  await assert.rejects(env.run("echo some; sleep 1000", { timeoutMs: 300 }), (error: sdk.TimeoutError) => error.result?.stdout === "some\n");
  await assert.rejects(env.run([]), sdk.BadArgumentError);
  await assert.rejects(env.spawn(["/no/such/program"]), { code: "ENOENT", path: "/no/such/program" });
});

test("a body is streamed", async () => {
  await using env = await sdk.local();
  const listening = "const h = require('http').createServer((q, r) => { r.write('a'); setTimeout(() => r.end('b'), 50); }); h.listen(0, '127.0.0.1')";
  await using server = await env.spawn([process.execPath, "-e", listening]);
  const url = `http://127.0.0.1:${await server.waitForPort()}/`;
  await using response = await env.http.stream("GET", url);
  assert.equal(response.status, 200);
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece);
  assert.equal(Buffer.concat(pieces).toString(), "ab");
});
