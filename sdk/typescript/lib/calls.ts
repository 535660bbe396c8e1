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
  return path instanceof URL ? fileURLToPath(path) : bytesOf(path);
}

export function dataOf(data: Data): Buffer {
  // Not the text itself: a lone surrogate would be taken for a byte that is no text, as in a path.
  if (typeof data === "string") return Buffer.from(data);
  return data instanceof ArrayBuffer ? Buffer.from(data) : bytesOf(data);
}

function bytesOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Milliseconds as the seconds of the Rust part. */
export function seconds(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : milliseconds / 1000;
}

/** The items of pages, one by one, until a page is null. */
export class Pages<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  private items: T[] = [];
  private position = 0;
  private underWay: NativeCall | undefined;

  constructor(
    private native: NativeObject | undefined,
    private readonly convert: (page: any) => T[],
    private readonly signal?: AbortSignal,
  ) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<T>> {
    while (this.position >= this.items.length) {
      const native = this.native;
      if (!native) return { done: true, value: undefined };
      const page = await this.page(native);
      if (page === null) {
        this.close();
        return { done: true, value: undefined };
      }
      this.items = this.convert(page);
      this.position = 0;
    }
    return { done: false, value: this.items[this.position++]! };
  }

  private async page(native: NativeObject): Promise<any> {
    const call = native.call("next", {});
    this.underWay = call;
    try {
      return await finish(call, this.signal);
    } catch (error) {
      // Somebody has closed it meanwhile, and that is its end.
      if (!this.native && error instanceof AbortError) return null;
      throw error;
    } finally {
      this.underWay = undefined;
    }
  }

  /** Stops reading. Nobody is held back by it any more. */
  close(): void {
    this.native?.release();
    this.native = undefined;
    this.items = [];
    this.underWay?.cancel();
  }

  async return(): Promise<IteratorResult<T>> {
    this.close();
    return { done: true, value: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/** Pages of something that is opened when the first item is wanted. */
export async function* pages<T>(open: () => Promise<NativeObject>, convert: (page: any) => T[], signal?: AbortSignal): AsyncGenerator<T> {
  yield* new Pages(await open(), convert, signal);
}
