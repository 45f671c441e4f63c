"""Messages and file descriptors between two processes, over one socket pair, read without blocking.

Linux keeps message boundaries (SEQPACKET), so a process stopped or killed in mid-send leaves either a whole packet or
none. Where there is only a byte stream, packets carry their length and the reader keeps what is incomplete. A message
that is too large for a packet goes in several, and the reader keeps those that came until the last is there.
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

_LARGEST = 60_000  # bytes of a packet
_LENGTH = struct.Struct("<I")
# The first byte of a packet. In a byte stream a descriptor may arrive ahead of the packet that it belongs to.
_PLAIN, _WITH_DESCRIPTOR, _MORE_FOLLOWS = b"\0", b"\1", b"\2"
_NOW = int(socket.MSG_DONTWAIT) | int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_ROOM_FOR_DESCRIPTOR = socket.CMSG_SPACE(4)
_SEQPACKET = sys.platform.startswith("linux")


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair. Messages are Python objects, and better small; at most one descriptor goes with each.

    Only processes of one program talk over it, so what arrives may be unpickled.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._room = bytearray(_LARGEST + 4096) if _SEQPACKET else bytearray()
        self._partial = b""
        self._parts: list[bytes] = []
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

        Args:
            message: anything that can be pickled.
            descriptor: goes with it.

        Raises:
            ChannelClosed: the other end is closed.
        """
        data = pickle.dumps(message, protocol=5)
        while len(data) > _LARGEST:
            self._send_packet(_MORE_FOLLOWS + data[:_LARGEST], None)
            data = data[_LARGEST:]
        kind = _PLAIN if descriptor is None else _WITH_DESCRIPTOR
        self._send_packet(kind + data, descriptor)

    def _send_packet(self, packet: bytes, descriptor: int | None) -> None:
        ancillary = []
        if descriptor is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            if not _SEQPACKET:
                framed = _LENGTH.pack(len(packet)) + packet
                sent = self._socket.sendmsg([framed], ancillary)
                self._socket.sendall(framed[sent:])
            elif descriptor is None:
                self._socket.send(packet)
            else:
                self._socket.sendmsg([packet], ancillary)
        except OSError as error:
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
                arrived = self._receive_some()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if found:
                    break
                raise ChannelClosed from error
            if not arrived:
                if found:
                    break
                raise ChannelClosed
            if _SEQPACKET:
                self._take_packet(arrived)
            else:
                self._partial += arrived
                while (packet := self._next_framed()) is not None:
                    self._take_packet(packet)
        return found

    def _receive_some(self) -> bytes | memoryview:
        """A packet, or bytes of the stream; nothing where the other side is gone. Valid until the next call."""
        if not _SEQPACKET:
            data, ancillary, _flags, _address = self._socket.recvmsg(_LARGEST + 4096, _ROOM_FOR_DESCRIPTOR, _NOW)
            self._take_descriptors(ancillary)
            return data
        size, ancillary, _flags, _address = self._socket.recvmsg_into([self._room], _ROOM_FOR_DESCRIPTOR, _NOW)
        if ancillary:
            self._take_descriptors(ancillary)
        return memoryview(self._room)[:size]

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self._descriptors.extend(numbers)

    def _take_packet(self, packet: bytes | memoryview) -> None:
        kind, data = packet[0], memoryview(packet)[1:]
        if kind == _MORE_FOLLOWS[0]:
            self._parts.append(bytes(data))
            return
        if self._parts:
            data = memoryview(b"".join([*self._parts, data]))
            self._parts.clear()
        descriptor = self._descriptors.pop(0) if kind == _WITH_DESCRIPTOR[0] and self._descriptors else None
        self._arrived.append((pickle.loads(data), descriptor))

    def _next_framed(self) -> bytes | None:
        if len(self._partial) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._partial)
        end = _LENGTH.size + length
        if len(self._partial) < end:
            return None
        message, self._partial = self._partial[_LENGTH.size : end], self._partial[end:]
        return message
