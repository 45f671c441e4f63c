"""Messages between two ends of a socket pair."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from detaug.transport import channel as module
from detaug.transport.channel import Channel, ChannelClosed


@pytest.fixture(params=["packets", "stream"])
def ends(request, monkeypatch):
    monkeypatch.setattr(module, "_SEQPACKET", request.param == "packets" and hasattr(socket, "SOCK_SEQPACKET"))
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(ends):
    ours, theirs = ends
    sent = [("make", i, "x" * (i * 40)) for i in range(50)]
    for message in sent:
        ours.send(message)
    received = []
    while len(received) < len(sent):
        received += [message for message, _ in theirs.receive_ready(7)]
    assert received == sent


def test_a_descriptor_goes_with_its_message(ends):
    ours, theirs = ends
    read, write = os.pipe()
    ours.send("before")
    ours.send("with", write)
    ours.send("after")
    os.close(write)
    assert theirs.receive() == ("before", None)
    message, descriptor = theirs.receive()
    assert message == "with"
    os.write(descriptor, b"hello")
    os.close(descriptor)
    assert os.read(read, 10) == b"hello"
    assert theirs.receive() == ("after", None)
    os.close(read)


def test_nothing_is_waited_for_when_nothing_is_there(ends):
    ours, theirs = ends
    assert theirs.receive_ready() == []
    with pytest.raises(TimeoutError):
        ours.receive(timeout=0.01)


def test_the_other_sides_end_is_noticed_after_what_it_sent(ends):
    ours, theirs = ends
    ours.send("last words")
    ours.close()
    assert theirs.receive() == ("last words", None)
    with pytest.raises(ChannelClosed):
        theirs.receive()
    with pytest.raises(ChannelClosed):
        theirs.send("anyone?")


def test_message_of_any_size_arrives_whole_and_in_order(ends):
    ours, theirs = ends
    sent = [("small", 1), ("large", os.urandom(700_000)), ("small", 2), ("just above a packet", b"x" * 60_001)]
    read, write = os.pipe()

    def send():
        for message in sent:
            ours.send(message)
        ours.send(sent[1], write)

    sender = threading.Thread(target=send)  # it waits for room
    sender.start()
    assert [theirs.receive(timeout=20) for _ in sent] == [(message, None) for message in sent]
    message, descriptor = theirs.receive(timeout=20)
    sender.join()
    assert message == sent[1]
    os.write(descriptor, b"hello")
    assert os.read(read, 10) == b"hello"
    for number in (read, write, descriptor):
        os.close(number)
