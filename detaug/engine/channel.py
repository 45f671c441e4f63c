"""Messages and file descriptors between two processes, over one socket pair, read without blocking.

Linux keeps message boundaries (SEQPACKET), so a process stopped or killed in mid-send leaves either a whole message or
none. Where there is only a byte stream, messages carry their length and the reader keeps what is incomplete.
"""

from __future__ import annotations

import array
import os
import pickle
import select
import socket
import struct
import sys
from collections import deque
from typing import Any

_LARGEST = 60_000
_LENGTH = struct.Struct("<I")
_SEQPACKET = sys.platform.startswith("linux")


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair. Messages are small Python objects; at most one descriptor goes with each.

    Only processes of one program talk over it, so what arrives may be unpickled.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._partial = b""
        self._descriptors: list[int] = []
        self._arrived: deque[tuple[Any, int | None]] = deque()  # a byte stream may bring several messages at once

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Two connected ends; neither is inherited by a program that is executed."""
        kind = socket.SOCK_SEQPACKET if _SEQPACKET else socket.SOCK_STREAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        return Channel(ours), Channel(theirs)

    @staticmethod
    def from_descriptor(descriptor: int) -> Channel:
        """An end that another process passed on."""
        return Channel(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """For select and its like; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end, and any descriptor that came and was not asked for."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._socket.close()

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send one message whole, waiting for room where there is none.

        Raises:
            ChannelClosed: nobody reads it any more.
            ValueError: the message is too large for one datagram.
        """
        # The first byte says whether a descriptor goes with it: in a byte stream it may arrive ahead of its message.
        data = (b"\1" if descriptor is not None else b"\0") + pickle.dumps(message, protocol=5)
        if len(data) > _LARGEST:
            raise ValueError(f"a message of {len(data)} bytes is too large; bulk belongs into shared memory")
        ancillary = []
        if descriptor is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            if _SEQPACKET:
                self._socket.sendmsg([data], ancillary)
            else:
                framed = _LENGTH.pack(len(data)) + data
                sent = self._socket.sendmsg([framed], ancillary)
                self._socket.sendall(framed[sent:])
        except (BrokenPipeError, ConnectionResetError, OSError) as error:
            raise ChannelClosed from error

    def receive(self, timeout: float | None = None) -> tuple[Any, int | None]:
        """Wait for the next message and the descriptor that came with it.

        Raises:
            ChannelClosed: the other side is gone.
            TimeoutError: nothing came within `timeout` seconds.
        """
        while True:
            found = self.receive_ready(1)
            if found:
                return found[0]
            waiting = select.poll()  # select() cannot watch descriptors above 1023
            waiting.register(self._socket, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError

    def receive_ready(self, most: int = 64) -> list[tuple[Any, int | None]]:
        """The messages that have arrived, without waiting.

        Raises:
            ChannelClosed: the other side is gone and nothing is left to read.
        """
        found: list[tuple[Any, int | None]] = []
        while len(found) < most:
            if self._arrived:
                found.append(self._arrived.popleft())
                continue
            try:
                data, ancillary, _flags, _address = self._socket.recvmsg(
                    _LARGEST + 4096, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
                )
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if found:
                    break
                raise ChannelClosed from error
            self._take_descriptors(ancillary)
            if not data:
                if found:
                    break
                raise ChannelClosed
            if _SEQPACKET:
                self._arrived.append(self._decoded(data))
            else:
                self._partial += data
                while (message := self._next_framed()) is not None:
                    self._arrived.append(self._decoded(message))
        return found

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self._descriptors.extend(numbers)

    def _decoded(self, data: bytes) -> tuple[Any, int | None]:
        descriptor = self._descriptors.pop(0) if data[:1] == b"\1" and self._descriptors else None
        return pickle.loads(memoryview(data)[1:]), descriptor

    def _next_framed(self) -> bytes | None:
        if len(self._partial) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._partial)
        end = _LENGTH.size + length
        if len(self._partial) < end:
            return None
        message, self._partial = self._partial[_LENGTH.size : end], self._partial[end:]
        return message
