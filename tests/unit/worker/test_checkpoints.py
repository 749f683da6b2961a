"""Which checkpoint files a worker sends, and when."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from windfall.worker.transport.checkpoints import Checkpoints
from windfall.worker.transport.transfers import Failed


class SlowTransfers:
    """Transfers that end when the test says so."""

    def __init__(self) -> None:
        self.under_way: list[tuple[str, object]] = []

    def send(self, files, then, destinations, attempt) -> None:
        (_, path, _) = files[0]
        self.under_way.append((Path(path).read_text(), then))

    def arrives(self, fails: bool = False) -> None:
        text, then = self.under_way.pop(0)
        then(Failed("gone") if fails else [["checkpoint", f"sha of {text}", len(text), 0o600]])


def made(tmp_path):
    transfers = SlowTransfers()
    checkpoints = Checkpoints(str(tmp_path / "c"), transfers)
    held = SimpleNamespace(ident=1, job=1, task=0, key=(1, 0, 1), spec=SimpleNamespace(checkpoint_s=5.0))
    return checkpoints, transfers, held


def save(checkpoints, held, text: str, at_ns: int) -> None:
    path = Path(checkpoints.path(held))
    path.write_text(text)
    os.utime(path, ns=(at_ns, at_ns))


def test_what_is_saved_last_is_sent_though_an_older_one_is_under_way(tmp_path):
    checkpoints, transfers, held = made(tmp_path)
    ended = []
    save(checkpoints, held, "old", 1)
    checkpoints.look(held, 10.0, 10.0)
    save(checkpoints, held, "last", 2)
    checkpoints.send(held, 12.0, lambda: ended.append(True))
    assert [text for text, _ in transfers.under_way] == ["old"] and not ended
    transfers.arrives()
    assert [text for text, _ in transfers.under_way] == ["last"] and not ended, "it does not end before it is safe"
    transfers.arrives()
    assert ended == [True]
    assert [row[3:] for row in checkpoints.rows] == [["sha of old", 3, 10.0], ["sha of last", 4, 12.0]]


def test_the_attempt_ends_though_nothing_can_be_sent(tmp_path):
    checkpoints, transfers, held = made(tmp_path)
    ended = []
    checkpoints.send(held, 1.0, lambda: ended.append("nothing saved"))
    save(checkpoints, held, "old", 1)
    checkpoints.look(held, 10.0, 10.0)
    checkpoints.send(held, 12.0, lambda: ended.append("not sent"))
    transfers.arrives(fails=True)
    transfers.arrives(fails=True)
    assert ended == ["nothing saved", "not sent"] and checkpoints.rows == []


def test_a_file_that_has_not_changed_is_sent_once(tmp_path):
    checkpoints, transfers, held = made(tmp_path)
    save(checkpoints, held, "old", 1)
    checkpoints.look(held, 10.0, 10.0)
    checkpoints.look(held, 16.0, 16.0)
    transfers.arrives()
    checkpoints.look(held, 22.0, 22.0)
    assert transfers.under_way == [] and len(checkpoints.rows) == 1
