import os
import socket

from copydesk.inference.pod.inbox import Connection, GiveBack, Probe, Receiver, inbox


def test_messages_come_out_in_order_and_then_there_is_none() -> None:
    sender, receiver = inbox()
    assert sender.put(GiveBack(3))
    assert sender.put(Probe())
    assert [receiver.take(), receiver.take(), receiver.take()] == [(GiveBack(3), None), (Probe(), None), None]
    sender.close()
    receiver.close()


def test_a_connection_lives_on_at_the_other_end() -> None:
    sender, receiver = inbox()
    client, server = socket.socketpair()
    assert sender.put(Connection("gateway"), server)
    server.close()
    taken = receiver.take()
    assert taken is not None
    message, arrived = taken
    assert message == Connection("gateway")
    assert arrived is not None
    client.send(b"hello")
    assert arrived.recv(5) == b"hello"
    for sock in (client, arrived, sender, receiver):
        sock.close()


def test_whoever_takes_a_message_is_the_only_one_to_have_it() -> None:
    sender, mine = inbox()
    other = Receiver(socket.socket(fileno=os.dup(mine.fileno())))
    for number in range(4):
        assert sender.put(GiveBack(number))
    taken = [mine.take(), other.take(), mine.take(), other.take(), mine.take(), other.take()]
    assert taken == [*((GiveBack(number), None) for number in range(4)), None, None]
    for end in (sender, mine, other):
        end.close()


def test_a_full_inbox_says_so() -> None:
    sender, receiver = inbox()
    room = 0
    while sender.put(Probe()):
        room += 1
    assert room > 64
    assert receiver.take() == (Probe(), None)
    assert sender.put(Probe())
    sender.close()
    receiver.close()
