/**
 * Processes, files and HTTP of a machine: this one, or one behind a connection that may break.
 *
 * ```ts
 * import { connect, local } from "exec-server";
 *
 * await using env = await local();
 * console.log((await env.run("make -j", { cwd: "project" })).stdout);
 * ```
 */
export type { Abortable, Data, Path } from "./calls";
export { type Command, type CommandOptions, type ConnectOptions, Environment, type RunOptions, type SpawnOptions, connect, local } from "./environment";
export {
  AbortError,
  BadArgumentError,
  ClosedError,
  ConnectError,
  ConnectionLostError,
  ExecServerError,
  ExitError,
  ForbiddenError,
  OsError,
  TimeoutError,
  UnsupportedError,
} from "./errors";
export { Files, type SearchOptions, Watch, type WriteOptions } from "./files";
export { Http, type HttpOptions, HttpResponse, StreamedResponse, WholeResponse } from "./http";
export { Process, Stdin, type Waiting } from "./process";
export {
  type Cause,
  type Change,
  type Copied,
  type Entry,
  Exit,
  type Info,
  type Kind,
  type Line,
  type Match,
  OutputEvent,
  type ProcessInfo,
  Result,
  type Screen,
  type Stat,
} from "./values";
