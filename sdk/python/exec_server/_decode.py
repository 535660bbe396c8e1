"""Text and lines made of pieces of output."""

from __future__ import annotations

import codecs
import sys
from typing import Iterator

from ._types import Event


class TextDecoder:
    """Makes text of the pieces of each stream; a character may come in several pieces."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def feed(self, event: Event) -> str:
        decoder = self._decoders.setdefault(event.stream, codecs.getincrementaldecoder("utf-8")("replace"))
        return decoder.decode(event.data)

    def rest(self) -> Iterator[tuple[str, str]]:
        """Each stream, and what is left of a character that was broken off."""
        for stream, decoder in self._decoders.items():
            yield stream, decoder.decode(b"", True)


class LineSplitter:
    """Splits each stream into lines; a character or a line may come in several pieces. A line keeps no line end."""

    def __init__(self) -> None:
        self._decoder = TextDecoder()
        self._begun: dict[str, str] = {}

    def feed(self, event: Event) -> Iterator[str]:
        stream = event.stream
        if stream == "gap":
            yield f"[{event.lost_bytes} bytes were dropped before they were read]"
            return
        text = self._begun.pop(stream, "") + self._decoder.feed(event)
        *lines, rest = text.split("\n")
        for line in lines:
            yield line.removesuffix("\r")
        if rest:
            self._begun[stream] = rest

    def rest(self) -> Iterator[str]:
        """What is left without a line end."""
        for stream, rest in self._decoder.rest():
            text = self._begun.pop(stream, "") + rest
            if text:
                yield text


class Display:
    """Prints output as it comes, for `progress=True`."""

    def __init__(self) -> None:
        self._decoder = TextDecoder()

    def show(self, event: Event) -> None:
        if event.stream == "gap":
            self._print("stderr", f"[{event.lost_bytes} bytes were dropped before they were read]\n")
        else:
            self._print(event.stream, self._decoder.feed(event))

    def end(self) -> None:
        for stream, rest in self._decoder.rest():
            self._print(stream, rest)

    def _print(self, stream: str, text: str) -> None:
        if text:
            shown = sys.stderr if stream == "stderr" else sys.stdout
            shown.write(text)
            shown.flush()
