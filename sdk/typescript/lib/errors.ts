// What is thrown. Every error is an ExecServerError; one that comes from a kernel has `code`, `errno`, `path` as Node's own have,
// whichever machine it comes from.

import { getSystemErrorName } from "node:util";
import type { Failure } from "./native";
import { Result } from "./values";

/** Something that exec-server was asked for failed. */
export class ExecServerError extends Error {
  /** One word for programs to compare, where there is one: `"processExists"`, `"tooLarge"` … */
  readonly reason: string | undefined;

  constructor(message: string, reason?: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.reason = reason;
  }
}

/** A kernel refused. */
export class OsError extends ExecServerError {
  /** `"ENOENT"`, `"EACCES"` … */
  readonly code: string;
  /** Negative, as Node's are. */
  readonly errno: number;
  readonly path: string | undefined;

  constructor(message: string, errno: number, path?: string, reason?: string) {
    super(message, reason);
    this.errno = -errno;
    this.code = getSystemErrorName(-errno);
    this.path = path;
  }
}

/** There is no connection: nobody answers, or the server says no. `reason` is unreachable, refused or unknownSession. */
export class ConnectError extends ExecServerError {}

/** The connection broke, and was given up after `reconnectTimeoutMs`. */
export class ConnectionLostError extends ExecServerError {}

/** The environment was closed before. */
export class ClosedError extends ExecServerError {}

/** The caller asked for something that makes no sense. */
export class BadArgumentError extends ExecServerError {
  readonly code = "ERR_INVALID_ARG_VALUE";
}

/** Whoever serves the environment does not allow it. */
export class ForbiddenError extends ExecServerError {}

/** The machine, or the server there, lacks something. */
export class UnsupportedError extends ExecServerError {}

/** It took longer than it was given. Of `run`, `result` has what was printed until then. */
export class TimeoutError extends ExecServerError {
  readonly code = "ETIMEDOUT";
  readonly result: Result | undefined;

  constructor(message: string, result?: Result) {
    super(message);
    this.result = result;
  }
}

/** An AbortSignal has ended it. `cause` is the signal's reason. */
export class AbortError extends ExecServerError {
  readonly code = "ABORT_ERR";

  constructor(cause?: unknown) {
    super("the call was aborted", undefined, { cause });
  }
}

/** A process that was to be checked ended with another code than 0. */
export class ExitError extends ExecServerError {
  readonly result: Result;

  constructor(command: unknown, result: Result) {
    const shown = typeof command === "string" ? command : JSON.stringify(command);
    const said = result.stderr.trim().slice(-2000);
    super(`${shown} ended with ${result.exit.describe()}${said ? `:\n${said}` : ""}`);
    this.result = result;
  }
}

/** The exception for a failure of the Rust part. */
export function errorOf({ kind, message, errno, path, reason, partial }: Failure, signal?: AbortSignal): ExecServerError {
  const word = reason ?? undefined;
  switch (kind) {
    case "os":
      return new OsError(message, errno ?? 0, path ?? undefined, word);
    case "connect":
      return new ConnectError(message, word);
    case "connectionLost":
      return new ConnectionLostError(message, word);
    case "closed":
      return new ClosedError(message, word);
    case "badArgument":
      return new BadArgumentError(message, word);
    case "forbidden":
      return new ForbiddenError(message, word);
    case "unsupported":
      return new UnsupportedError(message, word);
    case "timedOut":
      return new TimeoutError(message, partial ? new Result(partial) : undefined);
    case "cancelled":
      return new AbortError(signal?.reason);
    default:
      return new ExecServerError(message, word);
  }
}
