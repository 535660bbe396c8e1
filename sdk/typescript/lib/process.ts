// A process of an environment, and what it reads and prints.

import { Readable, Writable } from "node:stream";
import { type Abortable, type Data, Pages, type PageReading, call, dataOf, seconds } from "./calls";
import { LineSplitter } from "./lines";
import type { NativeObject } from "./native";
import { Exit, type Match, type OutputEvent, Result, type Screen, camelKeys, eventsOf, signalNumber } from "./values";

/** How long to wait. Without a time, for as long as it takes. */
export interface Waiting extends Abortable {
  timeoutMs?: number | undefined;
}

/** The stdin of a process that was started with `stdin: true` or on a terminal. */
export class Stdin {
  constructor(private readonly native: NativeObject) {}

  /** Returns when that machine's kernel has all of it. Fails with `EPIPE` if nobody reads it any more. */
  async write(data: Data, { signal }: Abortable = {}): Promise<void> {
    await call(this.native, "write", { data: dataOf(data) }, signal);
  }

  /** The program there reads the end of its input. */
  async close(): Promise<void> {
    await call(this.native, "close_stdin", {});
  }

  /** As a stream of Node, to pipe something into. */
  writable(): Writable {
    const { native } = this;
    const settle = (work: Promise<unknown>, done: (error?: Error | null) => void) => void work.then(() => done(), done);
    return new Writable({
      write: (chunk: Buffer, _encoding, done) => settle(call(native, "write", { data: dataOf(chunk) }), done),
      final: (done) => settle(call(native, "close_stdin", {}), done),
    });
  }
}

/**
 * A process of an environment. Letting go of it leaves it running; `await using` ends it, and all that it has started.
 * Iterating over it gives its output.
 */
export class Process implements AsyncDisposable, AsyncIterable<OutputEvent> {
  readonly id: string;
  readonly pid: number;
  readonly stdin: Stdin;
  private readonly native: NativeObject;

  /** @internal */
  constructor(started: { process: NativeObject; id: string; pid: number }) {
    this.native = started.process;
    this.id = started.id;
    this.pid = started.pid;
    this.stdin = new Stdin(this.native);
  }

  /** Its output from the beginning, as it comes, until nobody is left who could print more. */
  [Symbol.asyncIterator](): AsyncGenerator<OutputEvent> {
    return this.events();
  }

  /** The same, after the event with this number. */
  events({ after = 0, signal }: { after?: number | undefined } & Abortable = {}): AsyncGenerator<OutputEvent> {
    return this.output(after, { convert: eventsOf, signal });
  }

  /** Its output as lines of text, of both streams. */
  lines({ signal }: Abortable = {}): AsyncGenerator<string> {
    const splitter = new LineSplitter();
    const convert = (page: any) => eventsOf(page).flatMap((event) => [...splitter.feed(event)]);
    return this.output(0, { convert, last: () => [...splitter.rest()], signal });
  }

  private output<T>(after: number, reading: PageReading<T>): Pages<T> {
    return new Pages(() => call(this.native, "output", { after }, reading.signal), reading);
  }

  /** Its output, or one stream of it, as a stream of Node, to pipe somewhere. */
  readable(stream?: "stdout" | "stderr"): Readable {
    const isWanted = (event: OutputEvent) => event.stream !== "gap" && (stream === undefined || event.stream === stream);
    const pieces = this.output(0, { convert: (page) => eventsOf(page).filter(isWanted) });
    return new Readable({
      read() {
        pieces.next().then(
          ({ done, value }) => this.push(done ? null : value.data),
          (error) => this.destroy(error),
        );
      },
      // Whoever destroys it does not wait for output that may never come.
      destroy(error, done) {
        pieces.close();
        done(error);
      },
    });
  }

  /** Waits for its exit; a TimeoutError leaves it as it is. */
  async wait({ timeoutMs, signal }: Waiting = {}): Promise<Exit> {
    return new Exit(await call(this.native, "wait", { timeout: seconds(timeoutMs) }, signal));
  }

  /** Waits until nothing can be printed any more, and returns all that was. */
  async result({ timeoutMs, signal }: Waiting = {}): Promise<Result> {
    return new Result(await call(this.native, "result", { timeout: seconds(timeoutMs) }, signal));
  }

  /** @internal As `run` would return it: a TimeoutError if its time was over. */
  async resultOfRun(signal?: AbortSignal): Promise<Result> {
    return new Result(await call(this.native, "result", { run: true }, signal));
  }

  /** @internal Writes all of it and closes stdin. A program that has read enough is none of our business, as with a shell's pipe. */
  async feed(data: Buffer, signal?: AbortSignal): Promise<void> {
    await call(this.native, "feed", { data }, signal);
  }

  /** Waits for output that matches, in the syntax of Rust's `regex`; a RegExp is taken by its source. */
  async waitForOutput(regex: string | RegExp, { timeoutMs, signal, after = 0 }: Waiting & { after?: number } = {}): Promise<Match> {
    const source = typeof regex === "string" ? regex : sourceOf(regex);
    const args = { until: "output", regex: source, after, timeout: seconds(timeoutMs) };
    const { seq, text } = await call(this.native, "wait", args, signal);
    return { seq, data: text, text: text.toString() };
  }

  /** Waits until it, or what it has started, listens on a TCP port; any, if none is named. */
  async waitForPort(port?: number, { timeoutMs, signal }: Waiting = {}): Promise<number> {
    return call(this.native, "wait", { until: "port", port, timeout: seconds(timeoutMs) }, signal);
  }

  /** Waits until it has printed nothing for so long. */
  async waitForSilence(silenceMs: number, { timeoutMs, signal }: Waiting = {}): Promise<void> {
    const args = { until: "silence", silence: seconds(silenceMs), timeout: seconds(timeoutMs) };
    await call(this.native, "wait", args, signal);
  }

  /** Ends the whole process tree at once. Returns whether it was running. */
  async kill(): Promise<boolean> {
    return (await call(this.native, "terminate", {})).was_running;
  }

  /** Ends the whole process tree: SIGTERM, and SIGKILL after the grace. */
  async terminate({ graceMs = 5000 }: { graceMs?: number } = {}): Promise<boolean> {
    return (await call(this.native, "terminate", { grace: seconds(graceMs) })).was_running;
  }

  /** Sends a signal to the process group. Returns whether somebody was there to get it. */
  async signal(signal: string | number): Promise<boolean> {
    return call(this.native, "signal", { number: signalNumber(signal) });
  }

  /** Of a terminal. */
  async resize(rows: number, cols: number): Promise<void> {
    await call(this.native, "resize", { rows, cols });
  }

  /** What a person would see on its terminal. */
  async screen(): Promise<Screen> {
    return camelKeys(await call(this.native, "screen", {}));
  }

  /** Lets go of its output and its id; ends it if it is running. */
  async forget(): Promise<void> {
    await call(this.native, "forget", {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await call(this.native, "end", {});
  }
}

/** The flags that Rust's `regex` has, too, in its own way. */
function sourceOf(regex: RegExp): string {
  const flags = [...regex.flags].filter((flag) => "ims".includes(flag)).join("");
  return flags ? `(?${flags})${regex.source}` : regex.source;
}
