// Carries out the behaviours of `sdk/conformance` with the npm package.
//
// A step names an operation and its arguments, and says what comes out: a value that must be there (of a map only the fields
// that are named), or an error. What the operations are is in `sdk/conformance/README.md`.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { connect as connectTo } from "node:net";
import { constants, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import * as sdk from "exec-server";

type Map = Record<string, any>;

export interface Behaviour {
  name: string;
  steps: Map[];
  only?: string[];
  where?: string[];
  cuts?: boolean;
}

export function behaviours(): [string, Behaviour][] {
  const directory = process.env["EXEC_SERVER_CONFORMANCE"]!;
  const files = readdirSync(directory).filter((name) => name.endsWith(".json"));
  return files.sort().flatMap((file) => {
    const { behaviours } = JSON.parse(readFileSync(join(directory, file), "utf8")) as { behaviours: Behaviour[] };
    return behaviours.map((behaviour): [string, Behaviour] => [`${basename(file, ".json")}: ${behaviour.name}`, behaviour]);
  });
}

/** What was begun and may be cancelled. */
interface Begun {
  finished: Promise<unknown>;
  abort: AbortController;
}

/** One behaviour. Without a URL it is shown on this machine. */
export class Driver {
  private readonly names = new Map<string, any>();
  private env!: sdk.Environment;
  private cuts = true;

  constructor(
    private readonly url?: string,
    private readonly control?: string,
  ) {}

  async run(behaviour: Behaviour): Promise<void> {
    const tmp = realpathSync(mkdtempSync(join(tmpdir(), "exec-server-")));
    this.names.set("tmp", tmp);
    this.cuts = behaviour.cuts ?? true;
    this.env = await this.open();
    try {
      await this.steps(behaviour.steps);
    } finally {
      await this.env.end();
      await this.tellProxy("leave alone");
      rmSync(tmp, { recursive: true, force: true });
    }
  }

  private async open(options: sdk.ConnectOptions = {}): Promise<sdk.Environment> {
    if (this.url === undefined) return sdk.local();
    // Who connects for the first time is told of a failure at once, and not tried again for.
    await this.tellProxy("leave alone");
    const opened = await sdk.connect(this.url, options);
    if (this.cuts) await this.tellProxy("cut often");
    return opened;
  }

  private async steps(steps: Map[]): Promise<void> {
    for (const step of steps) {
      if (!("times" in step)) {
        await this.step(step);
        continue;
      }
      for (let n = 0; n < step["times"]; n++) {
        this.names.set("n", String(n));
        await this.steps(step["steps"]);
      }
    }
  }

  private async step(step: Map): Promise<void> {
    const [operation] = Object.keys(step).filter((name) => !["as", "expect", "error"].includes(name)) as [string];
    const args = operation === "begin" ? step[operation] : this.filled(step[operation]);
    let value: unknown;
    try {
      value = await this.do(operation, args);
    } catch (error) {
      if (!("error" in step)) throw error;
      check(this.filled(step["error"]), shownError(error), `the error of ${operation}`);
      return;
    }
    assert(!("error" in step), `${operation} did not fail, but returned ${JSON.stringify(value)}`);
    if ("as" in step) this.names.set(this.filled(step["as"]), value);
    if ("expect" in step) check(this.filled(step["expect"]), value, operation);
  }

  /** With the names in it replaced, and what is written shortly written out. */
  private filled(value: any): any {
    if (Array.isArray(value)) return value.map((item) => this.filled(item));
    if (typeof value === "string") {
      const named = value.replace(/\$(\w+)\.id\b/g, (_, name) => this.names.get(name).id);
      return named.replace(/\$(tmp|n|port)\b/g, (found, name) => String(this.names.get(name) ?? found));
    }
    if (value === null || typeof value !== "object") return value;
    if ("$repeat" in value) return value["$repeat"][0].repeat(value["$repeat"][1]);
    if ("$base64" in value) return Buffer.from(value["$base64"], "base64");
    if ("$join" in value) return value["$join"].map((part: any) => this.filled(part)).join("");
    if (value["$same_as"] === "cwd") return process.cwd();
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [this.filled(name), this.filled(item)]));
  }

  private do(operation: string, { of, ...args }: Map, signal?: AbortSignal): Promise<unknown> {
    const options: Map = { ...(operation === "begin" ? args : optionsOf(args)), signal };
    if (operation.startsWith("files.")) return this.files(operation.slice("files.".length), options);
    const perform = this.operations[operation];
    assert(perform, `there is no operation ${operation}`);
    return perform(this.names.get(of), options);
  }

  private readonly operations: Record<string, (subject: any, options: any) => Promise<unknown>> = {
    run: async (_, { command, ...options }) => shownResult(await this.quietly(() => this.env.run(command, options))),
    spawn: (_, { command, ...options }) => this.env.spawn(command, options),
    spawn_in_scope: async (_, { command }) => {
      await using _process = await this.env.spawn(command);
    },
    attach: (_, { id }) => this.env.attach(id),
    id: async (process: sdk.Process) => process.id,
    write: (process: sdk.Process, { data, signal }) => process.stdin.write(data, { signal }),
    close_stdin: (process: sdk.Process) => process.stdin.close(),
    read_all: async (process: sdk.Process, { after, signal }) => {
      const read: Record<string, Buffer[]> = { stdout: [], stderr: [], pty: [], gap: [] };
      let lost = 0;
      for await (const event of process.events({ after, signal })) {
        read[event.stream]!.push(event.data);
        lost = event.lostBytes || lost;
      }
      const text = (name: string) => Buffer.concat(read[name]!).toString();
      return { lost_bytes: lost, stdout: text("stdout"), stderr: text("stderr"), pty: text("pty") };
    },
    read_lines: (process: sdk.Process, { signal }) => collected(process.lines({ signal })),
    read_until: async (process: sdk.Process, { text, signal }) => {
      let seen = "";
      for await (const event of process.events({ signal })) {
        seen += event.text;
        if (seen.includes(text)) return;
      }
      assert.fail(`${text} did not come, only ${seen}`);
    },
    wait: async (process: sdk.Process, options) => shownExit(await process.wait(options)),
    result: async (process: sdk.Process, options) => shownResult(await process.result(options)),
    wait_for_output: async (process: sdk.Process, { regex, ...options }) => process.waitForOutput(regex, options),
    wait_for_silence: (process: sdk.Process, { silenceMs, ...options }) => process.waitForSilence(silenceMs, options),
    wait_for_port: (process: sdk.Process, { port, ...options }) => process.waitForPort(port, options),
    kill: (process: sdk.Process) => process.kill(),
    terminate: (process: sdk.Process, { graceMs }) => process.terminate({ graceMs }),
    signal: (process: sdk.Process, { sig }) => process.signal(sig),
    resize: (process: sdk.Process, { rows, cols }) => process.resize(rows, cols),
    screen: async (process: sdk.Process) => snakeKeys(await process.screen()),
    forget: (process: sdk.Process) => process.forget(),
    processes: async () => {
      const found = await this.env.processes();
      return {
        count: found.length,
        argv: found.map((info) => info.argv),
        cwd: found.map((info) => info.cwd),
        exited: found.map((info) => info.exit !== null),
      };
    },
    until_processes: async (_, { count }) => {
      while ((await this.env.processes()).length !== count) await sleep(10);
    },
    until_file: async (_, { path }) => {
      while (!existsSync(path)) await sleep(10);
    },
    begin: async (_, { signal: _none, ...operation }) => {
      const [[name, args]] = Object.entries(operation) as [[string, Map]];
      const abort = new AbortController();
      const finished = this.do(name, this.filled(args), abort.signal);
      // Whoever finishes it hears of its failure.
      finished.catch(() => {});
      return { finished, abort } satisfies Begun;
    },
    cancel: async (begun: Begun) => begun.abort.abort(),
    finish: (begun: Begun) => begun.finished,
    until_change: async (watch: sdk.Watch, { path }) => {
      for await (const change of watch) {
        // After a cut, a watch says to look at everything again.
        if (change.path === path || change.kind === "overflow") return change;
      }
      assert.fail(`nothing was told of ${path}`);
    },
    close_watch: async (watch: sdk.Watch) => watch.close(),
    http: async (_, { method, url, content, ...options }) => {
      const response = await this.env.http.request(method, url, { ...options, body: content });
      let json: unknown = null;
      try {
        json = response.json();
      } catch {}
      const { status, ok, text } = response;
      return { status, ok, text, json, header_x_type: response.header("X-Type") };
    },
    info: async (environment: sdk.Environment | undefined) => snakeKeys(await (environment ?? this.env).info()),
    cut: () => this.tellProxy("cut"),
    block: () => this.tellProxy("block"),
    unblock: () => this.tellProxy("unblock"),
    reconnect: async () => {
      const { sessionId } = await this.env.info();
      await this.env.close();
      this.env = await this.open({ session: sessionId! });
    },
    open: () => this.open(),
    close: (environment: sdk.Environment) => environment.close(),
    use_closed: (environment: sdk.Environment) => environment.run("true"),
    connect: (_, { url, ...options }) => sdk.connect(url, options),
    unknown_option: () => this.env.run("true", { noSuchOption: 1 } as sdk.RunOptions),
  };

  private async files(verb: string, { path, ...options }: Map): Promise<unknown> {
    const { files } = this.env;
    const { data, to, target, mode, algorithm, pattern, ...rest } = options;
    switch (verb) {
      case "read":
        return files.readText(path, rest);
      case "read_base64":
        return (await files.read(path, rest)).toString("base64");
      case "write":
        return files.write(path, data, { ...rest, mode });
      case "list":
        return (await files.list(path)).map(snakeKeys);
      case "stat":
        return snakeKeys(await files.stat(path));
      case "mkdir":
        return files.mkdir(path, { parents: rest["parents"], mode });
      case "move":
        return files.move(path, to, rest);
      case "copy":
        return files.copy(path, to, rest);
      case "chmod":
        return files.chmod(path, mode);
      case "symlink":
        return files.symlink(path, target);
      case "hash":
        return files.hash(path, algorithm);
      case "glob":
        return files.glob(pattern, path, rest);
      case "search":
        return (await collected(files.search(pattern, path, rest))).map(({ data: _, ...line }) => line);
      case "watch":
        return files.watch(path, rest);
      case "remove":
        return files.remove(path, rest);
      case "exists":
      case "readlink":
      case "realpath":
        return files[verb](path);
      default:
        assert.fail(`there is no operation files.${verb}`);
    }
  }

  /** What `progress` prints is not for whoever reads the tests. */
  private async quietly<T>(work: () => Promise<T>): Promise<T> {
    const { stdout, stderr } = process;
    const writes = [stdout.write, stderr.write] as const;
    stdout.write = stderr.write = () => true;
    try {
      return await work();
    } finally {
      [stdout.write, stderr.write] = writes;
    }
  }

  /** Without a proxy there is nothing to cut, and the behaviour must be the same. */
  private async tellProxy(word: string): Promise<void> {
    if (this.control === undefined) return;
    const [host, port] = this.control.split(":") as [string, string];
    const connection = connectTo({ host, port: Number(port) });
    connection.end(`${word}\n`);
    for await (const answer of connection) assert.equal(String(answer), "ok");
  }
}

const MILLISECONDS: Record<string, string> = {
  timeout: "timeoutMs",
  grace: "graceMs",
  seconds: "silenceMs",
  reconnect_timeout: "reconnectTimeoutMs",
};

/** The options of a behaviour as this package calls them. */
function optionsOf(args: Map): Map {
  const named = Object.entries(args).map(([name, value]) => {
    if (name in MILLISECONDS) return [MILLISECONDS[name], value * 1000];
    if (name === "tty" && Array.isArray(value)) return ["tty", { rows: value[0], cols: value[1] }];
    return [name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()), value];
  });
  return Object.fromEntries(named);
}

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function snakeKeys(value: object): Map {
  const shown = (item: unknown) => (item instanceof Date ? item.getTime() / 1000 : item);
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [snake(name), shown(item)]));
}

function shownExit(exit: sdk.Exit): Map {
  const signal = exit.signal && constants.signals[exit.signal as NodeJS.Signals];
  return { ...snakeKeys(exit), signal, cause: snake(exit.cause) };
}

function shownResult(result: sdk.Result): Map {
  return {
    stdout: result.stdout,
    stderr: result.stderr,
    stdout_base64: result.stdoutBytes.toString("base64"),
    exit_code: result.exitCode,
    ok: result.ok,
    signal: shownExit(result.exit)["signal"],
    cause: snake(result.exit.cause),
  };
}

function shownError(error: unknown): Map {
  assert(error instanceof Error, String(error));
  const shown = { message: error.message, reason: (error as sdk.ExecServerError).reason ?? null };
  if (error instanceof sdk.ExitError) return { kind: "called_process", ...shownResult(error.result) };
  if (error instanceof sdk.TimeoutError) return { kind: "timeout", ...(error.result && shownResult(error.result)) };
  if (error instanceof sdk.OsError) return { kind: "os", errno: error.code, path: error.path ?? null, ...shown };
  const kinds = [
    ["closed", sdk.ClosedError],
    ["connect", sdk.ConnectError],
    ["connection_lost", sdk.ConnectionLostError],
    ["cancelled", sdk.AbortError],
    ["bad_argument", sdk.BadArgumentError],
    ["bad_argument", RangeError],
    ["unsupported", sdk.UnsupportedError],
    ["other", sdk.ExecServerError],
  ] as const;
  const [kind] = kinds.find(([, type]) => error instanceof type) ?? [];
  if (kind === undefined) throw error;
  return { kind, ...shown };
}

function check(expected: any, found: any, what: string): void {
  const is = `${what} is ${JSON.stringify(found)?.slice(0, 300)}`;
  if (expected === null || typeof expected !== "object") return assert.strictEqual(found, expected, `${is}, not ${String(expected).slice(0, 300)}`);
  if (Array.isArray(expected)) {
    assert(Array.isArray(found) && found.length === expected.length, is);
    return expected.forEach((value, index) => check(value, found[index], `${what}[${index}]`));
  }
  if (expected["$any"]) return;
  if ("$length" in expected) return assert.equal(found.length, expected["$length"], `the length of ${what}`);
  if ("$matches" in expected) return assert.match(found, new RegExp(expected["$matches"]), is);
  if ("$contains" in expected) return assert(found.includes(expected["$contains"]), is);
  if ("$one_of" in expected) return assert(expected["$one_of"].includes(found), is);
  if ("$type" in expected) return assert.equal(typeof found, expected["$type"], is);
  assert(found !== null && typeof found === "object", is);
  for (const [name, value] of Object.entries(expected)) {
    assert(name in found, `${what} has no ${name}: ${is}`);
    check(value, found[name], `${what}.${name}`);
  }
}
