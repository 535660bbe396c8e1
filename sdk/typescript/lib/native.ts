// The part that is Rust, as `src/lib.rs` declares it.

/** What a failed call says of itself; `errors.ts` makes an exception of it. */
export interface Failure {
  kind: string;
  message: string;
  errno?: number | null;
  path?: string | null;
  reason?: string | null;
  partial: any;
}

export interface NativeCall {
  done(): Promise<void>;
  waitSync(milliseconds: number): boolean;
  take(): { value: any } | { failure: Failure };
  cancel(): void;
}

export interface NativeObject {
  call(method: string, args: object): NativeCall;
  release(): void;
}

interface Native {
  open(way: "local" | "connect", args: object): NativeCall;
}

export const native: Native = load();

function load(): Native {
  try {
    return require("../native/exec_server.node") as Native;
  } catch (cause) {
    const machine = `${process.platform} ${process.arch}`;
    throw new Error(`exec-server has no library that loads here (${machine}); it is made for linux x64 with glibc`, { cause });
  }
}
