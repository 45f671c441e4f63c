"""Messages between two ends of a socket pair."""

from __future__ import annotations

import os
import resource
import threading

import pytest

from detaug.transport.channel import Channel, ChannelClosed


@pytest.fixture
def ends():
    ours, theirs = Channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_nothing_is_waited_for_when_nothing_is_there(ends):
    _, theirs = ends
    assert theirs.receive_ready() == []


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
    sent = [
        ("small", 1),
        ("large", os.urandom(700_000)),
        ("small", 2),
        ("just above what is read at once", b"x" * 65_537),
    ]
    read, write = os.pipe()

    def send():
        for message in sent:
            ours.send(message)
        ours.send(sent[1], write)

    sender = threading.Thread(target=send)  # it waits for room
    sender.start()
    assert [theirs.receive() for _ in sent] == [(message, None) for message in sent]
    message, descriptor = theirs.receive()
    sender.join()
    assert message == sent[1]
    os.write(descriptor, b"hello")
    assert os.read(read, 10) == b"hello"
    for number in (read, write, descriptor):
        os.close(number)


def test_a_descriptor_for_which_there_is_no_number_is_none_and_later_ones_are_those_of_their_messages(ends):
    ours, theirs = ends
    read, write = os.pipe()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name in ("lost", "comes"):
        ours.send(name, write)
    highest = max(read, write, ours.fileno(), theirs.fileno())
    taken = [os.dup(read) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(taken[-1] + 1, before[0]), before[1]))
    try:
        assert theirs.receive() == ("lost", None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for number in taken:
            os.close(number)
    message, descriptor = theirs.receive()
    assert message == "comes"
    os.write(descriptor, b"hello")
    assert os.read(read, 10) == b"hello"
    for number in (read, write, descriptor):
        os.close(number)
