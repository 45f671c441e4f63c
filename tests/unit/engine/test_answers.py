"""A worker's answers on their way: alone, or several in a message."""

from __future__ import annotations

from typing import Any

from detaug.engine.local.messages import Answers, Exists, Inline
from detaug.engine.local.worker import _QUICK_IN_A_ROW, _Answers
from detaug.transport.channel import Channel


def tickets_of(message: Any) -> list[int]:
    return [fields[0] for fields in message.inline] if isinstance(message, Answers) else [message.ticket]


def inline(ticket: int) -> Inline:
    return Inline(ticket, b"", [], None)


def test_no_batch_waits_for_others_before_many_in_a_row_were_quick() -> None:
    ours, theirs = Channel.pair()
    answers = _Answers(theirs, collect=True)
    for ticket in range(1, _QUICK_IN_A_ROW):
        answers.add(inline(ticket), None)
        [(message, _)] = ours.receive_ready()
        assert tickets_of(message) == [ticket]


def test_every_answer_arrives_once_and_in_order_however_they_travel() -> None:
    ours, theirs = Channel.pair()
    answers = _Answers(theirs, collect=True)
    arrived = []
    for ticket in range(200):
        answers.add(Exists(ticket, None) if ticket % 50 == 49 else inline(ticket), None)
        arrived += ours.receive_ready()
    answers.send()
    arrived += ours.receive_ready()
    assert [ticket for message, _ in arrived for ticket in tickets_of(message)] == list(range(200))
