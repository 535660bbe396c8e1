// Environments: opening them, running things there, closing them.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Abortable, type Data, type Path, call, dataOf, finish, pathOf, seconds } from "./calls";
import { AbortError, ExitError } from "./errors";
import { Files } from "./files";
import { Http } from "./http";
import { type NativeObject, native } from "./native";
import { Process } from "./process";
import { type Info, type ProcessInfo, Result, camelKeys, infoOfProcess } from "./values";

/** Text is a line for `/bin/sh`; a list is a program and its arguments, and no shell is involved. */
export type Command = string | readonly Path[];

/** What `run` and `spawn` have in common. `signal` ends a `run` with its process tree, and a `spawn` that is not done. */
export interface CommandOptions extends Abortable {
  cwd?: Path | undefined;
  /** Variables to set, or with null to remove. */
  env?: Record<string, string | number | boolean | null | undefined> | undefined;
  /** Leaves out the variables that the environment has. */
  clearEnv?: boolean | undefined;
  /** A terminal, of 24 by 80 or of this size. */
  tty?: boolean | { rows: number; cols: number } | undefined;
  /** After so long, the whole process tree is ended. */
  timeoutMs?: number | undefined;
  id?: string | undefined;
  user?: string | undefined;
}

export interface RunOptions extends CommandOptions {
  /** Without it, or with null, there is nothing to read. */
  input?: Data | null | undefined;
  /** Throws an ExitError if the exit code is not 0. */
  check?: boolean | undefined;
  /** Prints the output as it comes, too. */
  progress?: boolean | undefined;
}

export interface SpawnOptions extends CommandOptions {
  /** Whether something will be written to it; otherwise its stdin is empty. */
  stdin?: boolean | undefined;
}

export interface ConnectOptions extends Abortable {
  token?: string | undefined;
  /** Takes over the session with this id, and its processes. */
  session?: string | undefined;
  /** One of several behind a gateway. */
  environment?: string | undefined;
  /** How long a broken connection is tried again. */
  reconnectTimeoutMs?: number | undefined;
  /** How long the server keeps the session while nobody is connected. */
  detachedTtlMs?: number | undefined;
  /** The `exec-server` to bring where there is none (`ssh://` and its like); that of this package, if not said. */
  serverBinary?: Path | undefined;
}

/** A machine: this one, or one behind a connection that may break. */
export class Environment implements AsyncDisposable {
  readonly files: Files;
  readonly http: Http;

  /** @internal */
  constructor(private readonly native: NativeObject) {
    this.files = new Files(native);
    this.http = new Http(native);
    opened.add(native);
  }

  /** Runs a command to its end, and returns all that it printed. */
  async run(command: Command, options: RunOptions = {}): Promise<Result> {
    const { input, check, progress, signal, ...rest } = options;
    const args = argumentsOf(command, rest);
    // What is no data is refused before anything is started.
    const data = input === undefined || input === null ? undefined : dataOf(input);
    const result = progress ? await this.runShown(args, data, signal) : new Result(await this.do("run", { ...args, input: data }, signal));
    if (check && !result.ok) throw new ExitError(command, result);
    return result;
  }

  private async runShown(args: object, data: Buffer | undefined, signal: AbortSignal | undefined): Promise<Result> {
    const running = new Process(await this.do("spawn", { ...args, stdin: data !== undefined, run: true }, signal));
    try {
      // Begun and not awaited: a program that prints before it has read all is shown meanwhile, and what a full log drops after it
      // was shown has been collected.
      const fed = data && running.feed(data, signal);
      const result = running.resultOfRun(signal);
      // Until they are awaited nobody else hears of their failures.
      for (const begun of [fed, result]) begun?.catch(() => undefined);
      for await (const event of running.events({ signal })) {
        (event.stream === "stderr" ? process.stderr : process.stdout).write(event.data);
      }
      await fed;
      return await result;
    } finally {
      await running[Symbol.asyncDispose]();
    }
  }

  /** Starts a process that runs meanwhile. */
  async spawn(command: Command, options: SpawnOptions = {}): Promise<Process> {
    const { stdin, signal, ...rest } = options;
    return new Process(await this.do("spawn", { ...argumentsOf(command, rest), stdin }, signal));
  }

  /** Finds a process that was started before, by whomever in this session. */
  async attach(id: string): Promise<Process> {
    return new Process(await this.do("attach", { id }));
  }

  async processes(): Promise<ProcessInfo[]> {
    return (await this.do("processes", {})).map(infoOfProcess);
  }

  async info(): Promise<Info> {
    return camelKeys(await this.do("info", {}));
  }

  /** Ends what runs on this machine; leaves the session on another one, with what runs in it. Closing twice is fine. */
  async close(): Promise<void> {
    opened.delete(this.native);
    await this.do("close", {});
  }

  /** The same, and ends the session on another machine with all that runs in it. */
  async end(): Promise<void> {
    opened.delete(this.native);
    await this.do("close", { end: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private do(method: string, args: object, signal?: AbortSignal): Promise<any> {
    return call(this.native, method, args, signal);
  }
}

/** This machine, inside this program: no server is started, and what still runs ends with the environment. */
export async function local({ signal }: Abortable = {}): Promise<Environment> {
  return open("local", {}, signal);
}

/**
 * The machine behind a URL (`ws://`, `wss://`, `unix://`, `ssh://`, `docker://` …), or behind a program that speaks on its stdio.
 */
export async function connect(target: string | URL | readonly Path[], options: ConnectOptions = {}): Promise<Environment> {
  const { reconnectTimeoutMs, detachedTtlMs, serverBinary, signal, ...rest } = options;
  const isUrl = typeof target === "string" || target instanceof URL;
  const to = isUrl ? { url: String(target), packaged_binary: packagedBinary() } : { program: target.map(pathOf) };
  const args = {
    ...rest,
    ...to,
    reconnect_timeout: seconds(reconnectTimeoutMs),
    detached_ttl: seconds(detachedTtlMs),
    server_binary: serverBinary === undefined ? undefined : pathOf(serverBinary),
    client_name: "exec-server (Node)",
  };
  return open("connect", args, signal);
}

async function open(way: "local" | "connect", args: object, signal?: AbortSignal): Promise<Environment> {
  if (signal?.aborted) throw new AbortError(signal.reason);
  return new Environment(await finish(native.open(way, args), signal));
}

/** The `exec-server` that came with this package, if it came with one. */
function packagedBinary(): string | undefined {
  const path = join(__dirname, "..", "bin", "exec-server");
  return existsSync(path) ? path : undefined;
}

function argumentsOf(command: Command, options: CommandOptions): object {
  if (typeof command !== "string" && !Array.isArray(command)) throw new TypeError("a command is a line for the shell, or a list of words");
  const { cwd, env, clearEnv, tty, timeoutMs, ...rest } = options;
  return {
    ...rest,
    ...(typeof command === "string" ? { shell: command } : { argv: command.map(pathOf) }),
    ...(tty && { tty: true, ...(typeof tty === "object" && tty) }),
    cwd: cwd === undefined ? undefined : pathOf(cwd),
    env: env && variablesOf(env),
    clear_env: clearEnv,
    timeout: seconds(timeoutMs),
  };
}

/** A variable that is undefined is as if it were not there, as in Node's own `env`. */
function variablesOf(env: NonNullable<CommandOptions["env"]>): Record<string, string | null> {
  const named = Object.entries(env).filter(([, value]) => value !== undefined);
  return Object.fromEntries(named.map(([name, value]) => [name, value === null ? null : String(value)]));
}

/** What was opened and not closed. It is few, and a program that ends must end what it has started. */
const opened = new Set<NativeObject>();

/** How long the end of a program waits for what it has started on this machine to be ended. */
const CLEAN_UP_MS = 5000;

process.once("exit", () => {
  const closing = [...opened].map((environment) => environment.call("close", {}));
  for (const call of closing) call.waitSync(CLEAN_UP_MS);
});
