// Lines of text made of pieces of output.

import { StringDecoder } from "node:string_decoder";
import type { OutputEvent } from "./values";

/** Splits each stream into lines; a character or a line may come in several pieces. A line keeps no line end. */
export class LineSplitter {
  private readonly streams = new Map<string, { decoder: StringDecoder; begun: string }>();

  feed(event: OutputEvent): string[] {
    if (event.stream === "gap") return [`[${event.lostBytes} bytes were dropped before they were read]`];
    let stream = this.streams.get(event.stream);
    if (!stream) this.streams.set(event.stream, (stream = { decoder: new StringDecoder("utf8"), begun: "" }));
    const lines = (stream.begun + stream.decoder.write(event.data)).split("\n");
    stream.begun = lines.pop()!;
    return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  }

  /** What is left without a line end. */
  rest(): string[] {
    const rests = [...this.streams.values()].map(({ decoder, begun }) => begun + decoder.end());
    return rests.filter((rest) => rest !== "");
  }
}
