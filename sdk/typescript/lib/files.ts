// The files of an environment. Relative paths begin at its working directory.

import { type Abortable, type Data, Pages, type Path, call, dataOf, pathOf } from "./calls";
import type { NativeObject } from "./native";
import { type Change, type Copied, type Entry, type Line, type Stat, camelKeys, linesOf, statOf } from "./values";

export interface WriteOptions extends Abortable {
  append?: boolean;
  mode?: number;
  /** Makes the directories that are missing. */
  parents?: boolean;
}

export interface SearchOptions extends Abortable {
  /** The pattern is text, not a regular expression. */
  literal?: boolean;
  case?: "sensitive" | "insensitive" | "smart";
  word?: boolean;
  globs?: readonly string[];
  /** Leaves out what `.gitignore` and the like name; yes, if not said. */
  ignoreFiles?: boolean;
  hidden?: boolean;
  maxMatches?: number;
}

/** Changes of files, as they happen, until it is closed. */
export class Watch extends Pages<Change> {
  /** @internal */
  constructor(native: NativeObject, signal?: AbortSignal) {
    super(native, { convert: (page) => page, signal });
  }
}

export class Files {
  /** @internal */
  constructor(private readonly native: NativeObject) {}

  private on(verb: string, path: Path, args: object = {}, signal?: AbortSignal): Promise<any> {
    return call(this.native, `files.${verb}`, { ...args, path: pathOf(path) }, signal);
  }

  async read(path: Path, { signal }: Abortable = {}): Promise<Buffer> {
    return this.on("read", path, {}, signal);
  }

  /** As text; bytes that are no UTF-8 become U+FFFD. */
  async readText(path: Path, { signal }: Abortable = {}): Promise<string> {
    return (await this.read(path, { signal })).toString();
  }

  /** Writes the whole file or nothing. */
  async write(path: Path, data: Data, { signal, ...options }: WriteOptions = {}): Promise<void> {
    await this.on("write", path, { ...options, data: dataOf(data) }, signal);
  }

  async list(path: Path = "."): Promise<Entry[]> {
    return (await this.on("list", path)).map((entry: any) => camelKeys(entry));
  }

  async stat(path: Path): Promise<Stat> {
    return statOf(await this.on("stat", path));
  }

  async exists(path: Path): Promise<boolean> {
    return this.on("exists", path);
  }

  /** With all that leads there, unless `parents` is false. */
  async mkdir(path: Path, options: { parents?: boolean; mode?: number } = {}): Promise<void> {
    await this.on("mkdir", path, options);
  }

  async remove(path: Path, { recursive, missingOk }: { recursive?: boolean; missingOk?: boolean } = {}): Promise<void> {
    await this.on("remove", path, { recursive, missing_ok: missingOk });
  }

  async move(path: Path, to: Path, { overwrite }: { overwrite?: boolean } = {}): Promise<void> {
    await this.on("move", path, { to: pathOf(to), overwrite });
  }

  async copy(path: Path, to: Path, { recursive, keepTimes }: { recursive?: boolean; keepTimes?: boolean } = {}): Promise<Copied> {
    return this.on("copy", path, { to: pathOf(to), recursive, keep_times: keepTimes });
  }

  async chmod(path: Path, mode: number): Promise<void> {
    await this.on("chmod", path, { mode });
  }

  /** Makes `path` a link to `target`. */
  async symlink(path: Path, target: Path): Promise<void> {
    await this.on("symlink", path, { target: pathOf(target) });
  }

  async readlink(path: Path): Promise<string> {
    return this.on("readlink", path);
  }

  async realpath(path: Path): Promise<string> {
    return this.on("realpath", path);
  }

  async hash(path: Path, algorithm: "sha256" | "blake3" = "sha256", { signal }: Abortable = {}): Promise<string> {
    return this.on("hash", path, { algorithm }, signal);
  }

  async glob(pattern: string, path: Path = ".", { hidden, ignoreFiles, signal }: { hidden?: boolean; ignoreFiles?: boolean } & Abortable = {}): Promise<string[]> {
    return (await this.on("glob", path, { pattern, hidden, ignore_files: ignoreFiles }, signal)).paths;
  }

  /** Lines that match, as they are found. */
  search(pattern: string, path: Path = ".", { signal, ignoreFiles, maxMatches, ...options }: SearchOptions = {}): AsyncGenerator<Line> {
    const args = { ...options, pattern, ignore_files: ignoreFiles, max_matches: maxMatches };
    return new Pages(() => this.on("search", path, args, signal), { convert: linesOf, signal });
  }

  /** Begins to watch: what changes from now on is told. */
  async watch(path: Path, { recursive, ignoreFiles, signal }: { recursive?: boolean; ignoreFiles?: boolean } & Abortable = {}): Promise<Watch> {
    return new Watch(await this.on("watch", path, { recursive, ignore_files: ignoreFiles }, signal), signal);
  }
}
