// What calls return: plain values. Each is made of what the Rust part returns.

import { constants } from "node:os";
import { inspect } from "node:util";

/** Who ended a process: itself, somebody who asked for it, or a limit. */
export type Cause = "own" | "terminated" | "timedOut" | "outOfMemory" | "cpuLimit" | "fileSizeLimit";

/** How a process ended. */
export class Exit {
  /** What a shell would show: the program's own, 128 + n for a signal, -1 if nobody knows. */
  readonly code: number;
  /** The signal that ended it: `"SIGTERM"` … */
  readonly signal: string | null;
  readonly cause: Cause;
  readonly userSeconds: number;
  readonly systemSeconds: number;
  readonly maxRssBytes: number;

  constructor(value: any) {
    this.code = value.code;
    this.signal = value.signal === null ? null : signalName(value.signal);
    this.cause = camel(value.cause) as Cause;
    this.userSeconds = value.user_seconds;
    this.systemSeconds = value.system_seconds;
    this.maxRssBytes = value.max_rss_bytes;
  }

  /** For a person. */
  describe(): string {
    const text = this.signal ?? `exit code ${this.code}`;
    return this.cause === "own" ? text : `${text} (${this.cause.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)})`;
  }
}

/** A process that has ended, and everything that it printed. */
export class Result {
  readonly id: string;
  readonly exit: Exit;
  readonly stdoutBytes: Buffer;
  readonly stderrBytes: Buffer;
  /** How much a full log had dropped before it was read; that is missing in the bytes. */
  readonly lostBytes: number;

  constructor(value: any) {
    this.id = value.id;
    this.exit = new Exit(value.exit);
    this.stdoutBytes = value.stdout;
    this.stderrBytes = value.stderr;
    this.lostBytes = value.lost_bytes;
  }

  get exitCode(): number {
    return this.exit.code;
  }

  get ok(): boolean {
    return this.exit.code === 0;
  }

  /** As text; bytes that are no UTF-8 become U+FFFD. */
  get stdout(): string {
    return this.stdoutBytes.toString();
  }

  get stderr(): string {
    return this.stderrBytes.toString();
  }

  [inspect.custom](): string {
    return `Result { ${this.exit.describe()}, stdout: ${short(this.stdout)}, stderr: ${short(this.stderr)} }`;
  }
}

function short(text: string): string {
  return JSON.stringify(text.length <= 80 ? text : `${text.slice(0, 77)}...`);
}

/**
 * A piece of output: which stream, which bytes, and its number in the log. Where a full log has dropped output before it was
 * read, `stream` is `"gap"` and `lostBytes` says how much.
 */
export class OutputEvent {
  constructor(
    readonly stream: "stdout" | "stderr" | "pty" | "gap",
    readonly data: Buffer,
    readonly seq: number,
    readonly lostBytes = 0,
  ) {}

  get text(): string {
    return this.data.toString();
  }
}

const NOTHING = Buffer.alloc(0);

/** The events of a page that are output; the exit is asked for otherwise. */
export function eventsOf(page: [string, any, number][]): OutputEvent[] {
  const events: OutputEvent[] = [];
  for (const [stream, value, seq] of page) {
    if (stream === "gap") events.push(new OutputEvent("gap", NOTHING, seq, value));
    else if (stream !== "exit") events.push(new OutputEvent(stream as OutputEvent["stream"], value, seq));
  }
  return events;
}

/** What a person would see on a terminal. */
export interface Screen {
  lines: string[];
  rows: number;
  cols: number;
  cursorRow: number;
  cursorCol: number;
  cursorVisible: boolean;
  title: string | null;
  alternate: boolean;
}

/** Output that matched. */
export interface Match {
  seq: number;
  data: Buffer;
  text: string;
}

export interface ProcessInfo {
  id: string;
  pid: number;
  argv: string[];
  cwd: string;
  tty: boolean;
  /** By that machine's clock. */
  started: Date;
  exit: Exit | null;
  /** Whether nothing can be printed any more. */
  closed: boolean;
}

/** What a machine is. */
export interface Info {
  os: string;
  hostname: string | null;
  version: string;
  cwd: string | null;
  home: string | null;
  tempDir: string;
  shell: string;
  /** With it, `connect(url, { session })` takes over what this connection leaves behind. */
  sessionId: string | null;
}

/** Kinds of files; `symlink` is one that leads nowhere. */
export type Kind = "file" | "directory" | "symlink" | "special";

/** A name in a directory. */
export interface Entry {
  name: string;
  path: string;
  kind: Kind;
  isSymlink: boolean;
}

export interface Stat {
  kind: Kind;
  isSymlink: boolean;
  size: number;
  /** Permission bits. */
  mode: number;
  modified: Date;
  accessed: Date;
  uid: number;
  gid: number;
  nlink: number;
}

export interface Copied {
  files: number;
  directories: number;
  symlinks: number;
  bytes: number;
  skipped: number;
}

/** `to` is the new name of what was renamed; after an overflow, look at all of `path` again. */
export interface Change {
  kind: "created" | "modified" | "removed" | "renamed" | "overflow";
  path: string;
  to: string | null;
}

/** A line that was searched for. `spans` are the matches, as bytes within `data`. */
export interface Line {
  path: string;
  line: number;
  data: Buffer;
  text: string;
  spans: [number, number][];
}

export function infoOfProcess(value: any): ProcessInfo {
  return { ...value, started: dateOf(value.started), exit: value.exit && new Exit(value.exit) };
}

export function statOf(value: any): Stat {
  return { ...camelKeys<Stat>(value), modified: dateOf(value.modified), accessed: dateOf(value.accessed) };
}

export function linesOf(page: any[]): Line[] {
  return page.map(({ path, line, text, spans }) => ({ path, line, data: text, text: text.toString(), spans }));
}

function dateOf(seconds: number): Date {
  return new Date(seconds * 1000);
}

/** The same map with the names that JavaScript would give. */
export function camelKeys<T>(value: Record<string, unknown>): T {
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [camel(name), item])) as T;
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function signalName(number: number): string {
  const found = Object.entries(constants.signals).find(([, value]) => value === number);
  return found ? found[0] : `signal ${number}`;
}

/** A number, or a name with or without SIG. */
export function signalNumber(signal: string | number): number {
  if (typeof signal === "number") return signal;
  const name = signal.toUpperCase();
  const number = (constants.signals as Record<string, number>)[name.startsWith("SIG") ? name : `SIG${name}`];
  if (number === undefined) throw new RangeError(`there is no signal ${signal}`);
  return number;
}
