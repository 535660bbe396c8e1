// HTTP requests that the machine makes, from its network.

import { type Abortable, type Data, Pages, call, dataOf, seconds } from "./calls";
import type { NativeObject } from "./native";

export interface HttpOptions extends Abortable {
  headers?: Record<string, string>;
  body?: Data;
  /** Sent as JSON, with its content type. */
  json?: unknown;
  timeoutMs?: number;
  /** Yes, if not said. */
  followRedirects?: boolean;
}

/** The response to an HTTP request that the machine made. */
export class HttpResponse {
  readonly status: number;
  /** In the order of the response, names in lower case. */
  readonly headers: [string, string][];

  /** @internal */
  constructor(status: number, headers: [string, string][]) {
    this.status = status;
    this.headers = headers;
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** The first of that name. */
  header(name: string): string | undefined {
    return this.headers.find(([found]) => found === name.toLowerCase())?.[1];
  }
}

/** A response with its whole body. */
export class WholeResponse extends HttpResponse {
  readonly body: Buffer;

  /** @internal */
  constructor(value: any) {
    super(value.status, value.headers);
    this.body = value.body;
  }

  get text(): string {
    return this.body.toString();
  }

  json(): any {
    return JSON.parse(this.text);
  }
}

/** A response whose body is iterated over, once, as it comes. */
export class StreamedResponse extends HttpResponse implements AsyncIterable<Buffer>, AsyncDisposable {
  private readonly pieces: Pages<Buffer>;

  /** @internal */
  constructor(value: any, signal?: AbortSignal) {
    super(value.status, value.headers);
    this.pieces = new Pages(value.body as NativeObject, { convert: (piece: Buffer) => [piece], signal });
  }

  [Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    return this.pieces;
  }

  /** Lets go of the rest; whoever awaits a piece is at the end. */
  close(): void {
    this.pieces.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

export class Http {
  /** @internal */
  constructor(private readonly native: NativeObject) {}

  async request(method: string, url: string | URL, options: HttpOptions = {}): Promise<WholeResponse> {
    return new WholeResponse(await this.send(method, url, options, false));
  }

  /** The same, as soon as status and headers are there. */
  async stream(method: string, url: string | URL, options: HttpOptions = {}): Promise<StreamedResponse> {
    return new StreamedResponse(await this.send(method, url, options, true), options.signal);
  }

  async get(url: string | URL, options: HttpOptions = {}): Promise<WholeResponse> {
    return this.request("GET", url, options);
  }

  async post(url: string | URL, options: HttpOptions = {}): Promise<WholeResponse> {
    return this.request("POST", url, options);
  }

  private send(method: string, url: string | URL, options: HttpOptions, stream: boolean): Promise<any> {
    const { headers, body, json, timeoutMs, followRedirects, signal, ...rest } = options;
    const sent: Record<string, string> = { ...headers };
    if (json !== undefined && !Object.keys(sent).some((name) => name.toLowerCase() === "content-type")) {
      sent["content-type"] = "application/json";
    }
    const content = json === undefined ? body : JSON.stringify(json);
    const args = {
      ...rest,
      method,
      url: String(url),
      headers: sent,
      body: content === undefined ? undefined : dataOf(content),
      timeout: seconds(timeoutMs),
      follow_redirects: followRedirects,
      stream,
    };
    return call(this.native, "http", args, signal);
  }
}
