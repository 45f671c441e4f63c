"""Messages and file descriptors between two processes, over one socket pair, read without blocking.

Each message carries its length. The reader keeps the beginning of a message that is not complete,
so a process that is stopped or killed while it sends holds nobody up. A descriptor comes with the
first bytes of its message, or before them.
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

#: The head of a message: its length in bytes, and whether a descriptor comes with it.
_HEAD = struct.Struct("<Q?")
#: The largest number of bytes that one read takes.
_READ_BYTES = 65_536
_NOW = int(getattr(socket, "MSG_DONTWAIT", 0)) | int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair between two processes of one program.

    Messages are pickled, so both ends have to trust each other. At most one descriptor comes with
    each message.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._read = bytearray()
        # None stands for a descriptor that was lost: this process had no number free for it.
        self._descriptors: deque[int | None] = deque()

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Return two connected ends; a program that is executed inherits neither."""
        end, other_end = socket.socketpair(socket.AF_UNIX)
        return Channel(end), Channel(other_end)

    @staticmethod
    def from_descriptor(descriptor: int) -> Channel:
        """Return the end that another process passed on as a descriptor."""
        return Channel(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the descriptor, for `select` and its like; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end, and any descriptor that came and was not asked for."""
        for descriptor in self._descriptors:
            if descriptor is not None:
                os.close(descriptor)
        self._descriptors.clear()
        self._socket.close()

    def send(self, message: Any, descriptor: int | None = None) -> None:
        """Send one message, and a descriptor with it, waiting for room.

        Raises:
            ChannelClosed: the other end is closed.
        """
        # Pickled whole before the first byte is sent: an object that cannot be pickled leaves no
        # beginning of a message behind.
        contents = pickle.dumps(message, protocol=5)
        data = _HEAD.pack(len(contents), descriptor is not None) + contents
        num_sent = 0
        try:
            if descriptor is not None:
                num_sent = socket.send_fds(self._socket, [data], [descriptor])
            self._socket.sendall(data[num_sent:])
        except OSError as error:
            raise ChannelClosed from error

    def receive(self) -> tuple[Any, int | None]:
        """Wait for the next message, and return it with its descriptor."""
        while True:
            messages = self.receive_ready(1)
            if messages:
                return messages[0]
            # select() cannot watch descriptors above 1023.
            waiting = select.poll()
            waiting.register(self._socket, select.POLLIN)
            waiting.poll()

    def receive_ready(self, most: int = 64) -> list[tuple[Any, int | None]]:
        """Return the messages that have arrived, with their descriptors, without waiting.

        Raises:
            ChannelClosed: nothing is left to read, and nothing will come.
        """
        messages: list[tuple[Any, int | None]] = []
        while len(messages) < most:
            message = self._next_message()
            if message is not None:
                messages.append(message)
                continue
            try:
                # Not by socket.recv_fds, which leaves the flags out.
                data, ancillary, flags, _ = self._socket.recvmsg(
                    _READ_BYTES, socket.CMSG_SPACE(4), _NOW
                )
            except BlockingIOError:
                break
            except OSError:
                # The other process was killed (ECONNRESET), which is an end like any other.
                data = b""
            if not data:
                # What arrived before the end is returned first; the next call raises.
                if messages:
                    break
                raise ChannelClosed
            # The kernel gives the descriptor of one message at a time, so that they stay in order.
            if ancillary:
                self._descriptors += array.array("i", ancillary[0][2])
            elif flags & socket.MSG_CTRUNC:
                self._descriptors.append(None)
            self._read += data
        return messages

    def _next_message(self) -> tuple[Any, int | None] | None:
        """Return the first message of what has been read; None if it is not complete."""
        if len(self._read) < _HEAD.size:
            return None
        length, has_descriptor = _HEAD.unpack_from(self._read)
        end = _HEAD.size + length
        if end > len(self._read):
            return None
        message = pickle.loads(self._read[_HEAD.size : end])
        del self._read[:end]
        descriptor = None
        if has_descriptor and self._descriptors:
            descriptor = self._descriptors.popleft()
        return message, descriptor
