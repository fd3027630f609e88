"""Writes omniheap's binary trace format, version 1 (docs/trace-format.md). Needs neither PyTorch nor the library."""

import os
import struct
import zlib

from .._library import OmniheapError

_MAGIC = b"OMNITRC\n" + struct.pack("<H6x", 1)
_CHUNK = 64 << 10
_ALLOCATE, _FREE, _LABEL, _TITLE, _RENAME, _STEP = 1, 3, 10, 11, 16, 21
_LONGEST_TEXT = 60_000


def _varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _text(text):
    """A text as the format has it: not too long, and of whole characters."""
    return text.encode(errors="replace")[:_LONGEST_TEXT].decode(errors="ignore").encode()


class Writer:
    """A trace under way. It has its name only once `close` was called; without that the file is removed."""

    def __init__(self, path, title):
        self._path = os.fspath(path)
        folder, name = os.path.split(self._path)
        # Hidden, so that `omniheap ranks`, which reads a whole folder, skips it.
        self._part = os.path.join(folder, f".{name}.{os.getpid()}.part")
        if os.path.isdir(self._path):
            raise OmniheapError(f"{self._path} is a folder; name a file in it")
        try:
            self._file = open(self._part, "wb")
        except OSError as error:
            raise OmniheapError(f"{self._path} cannot be written ({error.strerror}); name a file in a folder that exists and may be written to") from None
        self._file.write(_MAGIC)
        self._payload, self._records = bytearray(), 0
        self._labels, self._now, self._made = {(): 0}, 0, 0
        self._record(_TITLE, _text(title))

    def begin_step(self):
        """Marks the start of a step: the last one is replayed several times."""
        self._record(_STEP, b"")

    def allocate(self, time, size, label, stream=0):
        """Notes an allocation at a time in microseconds, never less than before; returns its number."""
        number, self._made = self._made, self._made + 1
        self._record(_ALLOCATE, _varint(number) + _varint(size) + _varint(stream) + b"\0" + _varint(self._label(label)), time)
        return number

    def free(self, time, number):
        """Notes that an allocation's bytes may be reused."""
        self._record(_FREE, _varint(number) + b"\0", time)

    def rename(self, number, label):
        """Gives an allocation another label, from its beginning on."""
        self._record(_RENAME, _varint(number) + _varint(self._label(label)))

    def close(self):
        """Finishes the file and puts it in its place."""
        self._flush()
        self._chunk(b"", 0xFFFFFFFF)
        self._file.close()
        os.replace(self._part, self._path)

    def abandon(self):
        """Removes what was written."""
        self._file.close()
        if os.path.exists(self._part):
            os.remove(self._part)

    def _label(self, path):
        """The number of a label: a tuple of texts, written once with everything above it."""
        known = self._labels.get(path)
        if known is None:
            parent = self._label(path[:-1])
            self._record(_LABEL, _varint(parent) + _text(path[-1]))
            known = self._labels[path] = len(self._labels)
        return known

    def _record(self, kind, fields, time=None):
        step = 0 if time is None else time - self._now
        self._now += step
        body = bytes([kind]) + _varint(step) + fields
        self._payload += struct.pack("<H", len(body)) + body
        self._records += 1
        if len(self._payload) >= _CHUNK:
            self._flush()

    def _flush(self):
        if self._records:
            self._chunk(bytes(self._payload), self._records)
            self._payload, self._records = bytearray(), 0

    def _chunk(self, payload, records):
        head = struct.pack("<II", len(payload), records)
        self._file.write(head + struct.pack("<I", zlib.crc32(head + payload)) + payload)
