// How calls of the Rust part are begun and awaited, and how JavaScript's values become theirs.

import { fileURLToPath } from "node:url";
import { AbortError, errorOf } from "./errors";
import type { NativeCall, NativeObject } from "./native";

/** A path. Bytes where it is no text; such paths come back as strings with lone surrogates, which are paths again. */
export type Path = string | Uint8Array | URL;

/** Text is sent as UTF-8. */
export type Data = string | Uint8Array | ArrayBuffer;

/** For calls that can be ended from outside. */
export interface Abortable {
  signal?: AbortSignal | undefined;
}

/** Awaits a call; an abort cancels it, and is waited for until the call has cleaned up. */
export async function finish(call: NativeCall, signal?: AbortSignal): Promise<any> {
  const cancel = () => call.cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  if (signal?.aborted) cancel();
  try {
    await call.done();
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
  const outcome = call.take();
  if ("failure" in outcome) throw errorOf(outcome.failure, signal);
  return outcome.value;
}

/** Begins a call and awaits it. */
export async function call(object: NativeObject, method: string, args: object, signal?: AbortSignal): Promise<any> {
  if (signal?.aborted) throw new AbortError(signal.reason);
  return finish(object.call(method, args), signal);
}

/** A path or a word of a command line, as the Rust part takes it. */
export function pathOf(path: Path): string | Buffer {
  if (typeof path === "string") return path;
  return path instanceof URL ? fileURLToPath(path) : bytesOf(path, "a path or a word");
}

export function dataOf(data: Data): Buffer {
  // Not the text itself: a lone surrogate would be taken for a byte that is no text, as in a path.
  if (typeof data === "string") return Buffer.from(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : bytesOf(data, "data");
}

/** Programs without types pass anything. */
function bytesOf(bytes: Uint8Array, what: string): Buffer {
  if (!ArrayBuffer.isView(bytes)) throw new TypeError(`${what} must be text or bytes, not ${bytes === null ? "null" : typeof bytes}`);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Milliseconds as the seconds of the Rust part. */
export function seconds(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : milliseconds / 1000;
}

/** How pages are read: what an item is, and what comes after the last page. */
export interface PageReading<T> {
  convert: (page: any) => T[];
  last?: () => T[];
  signal?: AbortSignal | undefined;
}

/**
 * The items of pages, one by one, until a page is null. It is closed by `close` and `return`, also while an item is awaited, which a
 * generator would not allow.
 */
export class Pages<T> implements AsyncGenerator<T, undefined> {
  private items: T[] = [];
  private position = 0;
  private native: NativeObject | undefined;
  private readonly open: (() => Promise<NativeObject>) | undefined;
  private isEnded = false;
  private turn: Promise<unknown> = Promise.resolve();
  private waiting = 0;

  /** Reads what is open, or what `from` opens when the first item is wanted. */
  constructor(
    from: NativeObject | (() => Promise<NativeObject>),
    private readonly reading: PageReading<T>,
  ) {
    if (typeof from === "function") this.open = from;
    else this.native = from;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Several at once get their items one after the other. */
  next(): Promise<IteratorResult<T, undefined>> {
    // What is there already needs no turn.
    if (this.waiting === 0 && this.position < this.items.length) return this.take();
    this.waiting++;
    const result = this.turn.then(() => this.take()).finally(() => this.waiting--);
    this.turn = result.catch(() => undefined);
    return result;
  }

  private async take(): Promise<IteratorResult<T, undefined>> {
    while (this.position >= this.items.length) {
      if (this.isEnded) return { done: true, value: undefined };
      const page = await this.page();
      // Somebody may have closed it meanwhile, and that is its end.
      if (this.isEnded) return { done: true, value: undefined };
      if (page === null) this.close();
      this.items = page === null ? (this.reading.last?.() ?? []) : this.reading.convert(page);
      this.position = 0;
    }
    return { done: false, value: this.items[this.position++]! };
  }

  private async page(): Promise<any> {
    try {
      if (!this.native) {
        const native = await this.open!();
        if (this.isEnded) {
          native.call("close", {});
          native.release();
          return null;
        }
        this.native = native;
      }
      return await finish(this.native.call("next", {}), this.reading.signal);
    } catch (error) {
      if (this.isEnded) return null;
      this.close();
      throw error;
    }
  }

  /** Stops reading; whoever awaits an item is at the end. Nobody is held back by it any more. */
  close(): void {
    const native = this.native;
    this.isEnded = true;
    this.native = undefined;
    this.items = [];
    native?.call("close", {});
    native?.release();
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  async throw(error: unknown): Promise<IteratorResult<T, undefined>> {
    this.close();
    throw error;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}
