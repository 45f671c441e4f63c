"""Messages and file descriptors between two processes, over one socket pair, read without blocking.

Each message carries its length. The reader keeps what came of one that is not complete, so a
process that is stopped or killed while it sends holds nobody up. A descriptor comes with the first
bytes of its message, or ahead of them.
"""

from __future__ import annotations

import array
import os
import pickle
import select
import socket
import struct
from collections import deque
from typing import Any

#: Ahead of a message: its bytes, and whether a descriptor goes with it.
_HEAD = struct.Struct("<Q?")
_AT_ONCE = 65_536  # bytes that are read
_NOW = int(getattr(socket, "MSG_DONTWAIT", 0)) | int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair between processes of one program: what arrives may be unpickled. At
    most one descriptor goes with each message.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._read = bytearray()
        self._descriptors: deque[int | None] = (
            deque()
        )  # None: one for which this process had no number free

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Two connected ends; neither is inherited by a program that is executed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX)
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
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()
        self._socket.close()

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send one message whole, and a descriptor with it, waiting for room. ChannelClosed: the
        other end is.
        """
        data = pickle.dumps(message, protocol=5)
        data = _HEAD.pack(len(data), descriptor is not None) + data
        try:
            sent = 0 if descriptor is None else socket.send_fds(self._socket, [data], [descriptor])
            self._socket.sendall(data[sent:])
        except OSError as error:
            raise ChannelClosed from error

    def receive(self) -> tuple[Any, int | None]:
        """Wait for the next message and the descriptor that came with it."""
        while not (found := self.receive_ready(1)):
            waiting = select.poll()  # select() cannot watch descriptors above 1023
            waiting.register(self._socket, select.POLLIN)
            waiting.poll()
        return found[0]

    def receive_ready(self, most: int = 64) -> list[tuple[Any, int | None]]:
        """The messages that have arrived, without waiting. ChannelClosed: nothing is left to read,
        and nothing will come.
        """
        found: list[tuple[Any, int | None]] = []
        while len(found) < most:
            if (message := self._next_message()) is not None:
                found.append(message)
                continue
            try:
                # Not by socket.recv_fds, which leaves the flags out.
                data, ancillary, flags, _ = self._socket.recvmsg(
                    _AT_ONCE, socket.CMSG_SPACE(4), _NOW
                )
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                if found:
                    break
                raise ChannelClosed
            # The kernel gives the descriptor of one message at a time, so that they stay in order.
            if ancillary:
                self._descriptors += array.array("i", ancillary[0][2])
            elif flags & socket.MSG_CTRUNC:
                self._descriptors.append(None)
            self._read += data
        return found

    def _next_message(self) -> tuple[Any, int | None] | None:
        """Of what has been read; None: it is not complete."""
        if len(self._read) < _HEAD.size:
            return None
        length, has_descriptor = _HEAD.unpack_from(self._read)
        end = _HEAD.size + length
        if end > len(self._read):
            return None
        message = pickle.loads(self._read[_HEAD.size : end])
        del self._read[:end]
        return (
            message,
            self._descriptors.popleft() if has_descriptor and self._descriptors else None,
        )
