"""Lines of text made of pieces of output."""

from __future__ import annotations

import codecs
from typing import Iterator

from ._types import Event


class LineSplitter:
    """Splits each stream into lines; a character or a line may come in several pieces. A line keeps no line end."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._begun: dict[str, str] = {}

    def feed(self, event: Event) -> Iterator[str]:
        stream = event.stream
        if stream == "gap":
            yield f"[{event.lost_bytes} bytes were dropped before they were read]"
            return
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._begun.pop(stream, "") + self._decoders[stream].decode(event.data)
        *lines, rest = text.split("\n")
        for line in lines:
            yield line.removesuffix("\r")
        if rest:
            self._begun[stream] = rest

    def rest(self) -> Iterator[str]:
        """What is left without a line end."""
        for stream, decoder in self._decoders.items():
            text = self._begun.pop(stream, "") + decoder.decode(b"", True)
            if text:
                yield text
