"""Where rewards come from."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.errors import ConfigError, UsageError
from operant.schedulers.planning.pickles import load_plain_pickle
from operant.schedulers.planning.rewards import JobReader, RewardRule
from operant.tracking import SummaryWriter
from operant.tracking.exchange.tfevents_write import EventFileWriter


@pytest.fixture
def job(tmp_path: Path) -> Any:
    (tmp_path / "work").mkdir()

    def make(reduce: str = "last", pattern: str | None = None, **more: Any) -> JobReader:
        return JobReader(tmp_path, tmp_path / "work", RewardRule.parse("acc", reduce, pattern, **more))

    return make


@pytest.mark.parametrize(
    ("how", "expected"), [("last", 0.6), ("max", 0.9), ("min", 0.2), ("mean_last_2", 0.75), ("mean_last_100", 0.55)]
)
def test_how_many_values_become_one(how: str, expected: float) -> None:
    assert RewardRule.parse("acc", how).reward_of([0.2, 0.5, 0.9, 0.6]) == pytest.approx(expected)


def test_what_is_no_number() -> None:
    assert RewardRule.parse("acc", "last").reward_of([0.2, math.nan]) is None
    assert RewardRule.parse("acc", "max").reward_of([0.2, math.nan]) == 0.2
    assert RewardRule.parse("acc", "max").reward_of([]) is None
    for wrong in ("median", "mean_last_0", "mean_last_", 3):
        with pytest.raises(ConfigError, match="reward"):
            RewardRule.parse("acc", wrong)


def test_from_a_summary_writer(job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("OPERANT_RUN_ID", "s/0")
    reader = job("max")
    assert not reader.refresh()
    with SummaryWriter("x", system_metrics=False) as writer:
        for step, value in enumerate([0.1, 0.7, 0.4]):
            writer.add_scalar("acc", value, step)
            writer.add_scalar("loss", 1 - value, step)
        writer.flush()
        assert reader.refresh() and not reader.refresh()
        assert [point["value"] for point in reader.history()] == [0.1, 0.7, 0.4]
        assert set(reader.history()[0]) == {"iteration", "value", "created"} and reader.latest("loss") == 0.6
    assert reader.result() == (0.7, None)


def test_from_tensorboard_files(job: Any, tmp_path: Path) -> None:
    writer = EventFileWriter(tmp_path / "work" / "logs")
    writer.add_points("acc", [1, 2], [10.0, 11.0], [0.25, 0.5])
    writer.close()
    reader = job()
    assert reader.result() == (0.5, None) and [one["iteration"] for one in reader.history()] == [1, 2]


def test_from_a_pattern_on_stdout(job: Any, tmp_path: Path) -> None:
    out = tmp_path / "stdout"
    reader = job("max", "epoch {step}: acc={value}")
    assert not reader.refresh()
    out.write_text("hello\nepoch 1: acc=0.5\nepoch 2: acc=8.25e-1 epo")
    assert reader.refresh() and [one["iteration"] for one in reader.history()] == [1]
    with out.open("a") as stream:
        stream.write("ch\nepoch 3: acc=-inf\nepoch 4: acc=0.75")
    assert reader.result() == (0.825, None)
    assert [one["iteration"] for one in reader.history()] == [1, 2, 3, 4]


def test_a_regular_expression_and_one_that_never_fits(job: Any, tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("score 3 of 10\nscore 4 of 10\n")
    assert job("last", r"score (\d+)").result() == (4.0, None)
    reward, complaint = job("last", "acc {value}").result()
    assert reward is None and "no line of its output" in str(complaint)


@pytest.mark.parametrize(
    ("content", "expected"), [({"acc": 0.5, "x": "y"}, 0.5), (0.25, 0.25), ({"acc": [0.1, 0.9]}, 0.9), ([1, 2, 3], 3.0)]
)
def test_from_result_json(job: Any, tmp_path: Path, content: Any, expected: float) -> None:
    (tmp_path / "work" / "result.json").write_text(json.dumps(content))
    assert job().result() == (expected, None)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "content", [{"acc": 0.5}, {"acc": np.float32(0.5)}, {"acc": np.array([0.1, 0.5])}, np.float64(0.5)]
)
def test_from_result_pickle(job: Any, tmp_path: Path, content: Any, protocol: int) -> None:
    (tmp_path / "work" / "result.pkl").write_bytes(pickle.dumps(content, protocol))
    assert job().result() == (0.5, None)


@pytest.mark.parametrize("text", ["{", '{"accuracy": 1}', '{"acc": "high"}', '{"acc": null}'])
def test_a_result_that_is_none_says_why(job: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "work" / "result.json").write_text(text)
    reward, complaint = job().result()
    assert reward is None and "result.json" in str(complaint)


@pytest.mark.parametrize(
    "text",
    [
        '{"acc": 1%s}' % ("0" * 400),
        "[" * 100_000,
        '{"acc": %s}' % ("9" * 5000),
        '{"acc": [[1]]}',
        '{"acc": {}}',
        "",
        "{}",
        "[]",
        '{"%s": 1}' % ("x" * 100_000),
        " " * (5 << 20),
        '"' + "\\ud800" * 10 + '"',
    ],
    ids=lambda text: text[:12],
)
def test_whatever_a_result_holds_it_is_judged_in_a_sentence(job: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "work" / "result.json").write_text(text)
    reader = job()
    reward, complaint = reader.result()
    assert reward is None and 0 < len(str(complaint)) < 500 and not reader.reported


def test_a_result_that_is_nan_was_reported(job: Any, tmp_path: Path) -> None:
    (tmp_path / "work" / "result.json").write_text('{"acc": NaN}')
    reader = job()
    assert reader.result() == (None, "its last 'acc' is no number") and reader.reported


def test_results_that_were_there_before_are_not_the_jobs(job: Any, tmp_path: Path) -> None:
    (tmp_path / "work" / "result.json").write_text('{"acc": 0.99}')
    assert job().result({"results": []}) == (None, "it reported no 'acc'")
    assert job().result({"results": ["result.json"]}) == (0.99, None)
    (tmp_path / "all").mkdir()
    (tmp_path / "work" / "all").symlink_to(tmp_path / "all")
    writer = EventFileWriter(tmp_path / "all")
    writer.add_points("acc", [1], [10.0], [0.5])
    writer.close()
    reader = JobReader(tmp_path, tmp_path / "work", RewardRule(), ["all"])
    assert reader.result({"results": []})[0] is None
    assert job().result()[0] == 0.5  # a link that the program itself made


def test_a_step_that_is_no_sane_number_is_passed_over(job: Any, tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text(f"epoch {'9' * 5000}: acc=1\nepoch {'9' * 30}: acc=1\nepoch 2: acc=0.5\n")
    assert job("last", "epoch {step}: acc={value}").result() == (0.5, None)


def test_nothing_reported_says_so(job: Any) -> None:
    assert job().result() == (None, "it reported no 'acc'")


def hostile_pickles(marker: Path) -> list[bytes]:
    import os

    class System:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {marker}",))

    class Builtin:
        def __reduce__(self) -> Any:
            return (eval, (f"open({str(marker)!r}, 'w')",))

    text = str(marker).encode()
    return [
        *(pickle.dumps({"acc": one}, protocol) for one in (System(), Builtin()) for protocol in (0, 2, 5)),
        b"cposix\nsystem\n(S'touch " + text + b"'\ntR.",
        b"cbuiltins\ngetattr\n(cos\nsystem\nS'x'\ntR.",
        b"cnumpy\nload\n(S'" + text + b"'\ntR.",
        b"cnumpy.testing\nrundocs\n.",
        b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c\x05x = 1\x85R.",
        b"c_codecs\nencode\n(Vx\nVzlib\ntR.",
        b"Pexternal\n.",
        b"garbage",
        b"",
    ]


def test_a_pickle_with_code_in_it_never_runs(job: Any, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"
    for data in hostile_pickles(marker):
        path = tmp_path / "work" / "result.pkl"
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"result\.pkl"):
            load_plain_pickle(path)
        assert job().result()[0] is None
        assert not marker.exists()


def test_a_pickle_cannot_ask_for_endless_memory(tmp_path: Path) -> None:
    shape = np.zeros(3)
    data = pickle.dumps(shape, 2).replace(b"K\x03\x85", b"\x8a\x05\x00\x00\x00\x00\x40\x85")
    path = tmp_path / "result.pkl"
    path.write_bytes(data)
    with pytest.raises(UsageError):
        load_plain_pickle(path)
    path.write_bytes(pickle.dumps(np.array([object()], dtype=object), 2))
    with pytest.raises(UsageError):
        load_plain_pickle(path)
    path.write_bytes(b"cnumpy\nndarray\n(I100000\ntR.")  # a call of the class, with any shape one likes
    with pytest.raises(UsageError):
        load_plain_pickle(path)
    path.write_bytes(b"]" * (2 << 20) + b".")
    with pytest.raises(UsageError, match="too many"):
        load_plain_pickle(path)
    path.write_bytes(b"]r\xff\xff\xff\xff.")  # room for four thousand million remembered objects
    with pytest.raises(UsageError, match="numbers an object"):
        load_plain_pickle(path)
    path.write_bytes(b"cbuiltins\nbytearray\n(I100000\ntR.")
    with pytest.raises(UsageError):
        load_plain_pickle(path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_key_that_takes_for_ever_to_hash_is_refused(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "result.pkl"
    key: tuple[Any, ...] = (1,)
    for _ in range(8):
        key = (key, key)
    path.write_bytes(pickle.dumps({"acc": [(1, 2)] * 50, key: 1}, protocol))
    assert load_plain_pickle(path)[key] == 1
    doubled = b"g0\ng0\n\x86p0\n" * 60
    for data in (b"(I1\nt" + b"2\x86" * 60, b"(I1\ntp0\n" + doubled, b"(I1\ntp0\n" + doubled.replace(b"p", b"N0p")):
        path.write_bytes(b"}" + data + b"I1\ns.")
        with pytest.raises(UsageError, match=r"too deeply|no pickle of plain data"):
            load_plain_pickle(path)


def test_what_a_pickle_says_of_arrays_is_checked_before_numpy_hears_of_it(tmp_path: Path) -> None:
    path = tmp_path / "result.pkl"
    same = np.arange(6, dtype=">i4").reshape(2, 3)
    content = {
        "a": (same, [same]),
        "f": np.asfortranarray(np.ones((2, 3))),
        "t": np.array(["x", "yz"]),
        "b": np.bool_(1),
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(content, protocol))
        found = load_plain_pickle(path)
        for one, other in [(found["a"][0], same), (found["f"], content["f"]), (found["t"], content["t"])]:
            np.testing.assert_array_equal(one, other)
        assert found["a"][0] is found["a"][1][0] and found["b"] == np.True_
    state = b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"
    for data in (
        b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",
        b"cnumpy\ndtype\n(S'f8'\nI0\nI1\ntR(I3\nS'<'\nNNNI99999999\nI-1\nI0\ntb(I1\n(I9\ntN I0\nS''\ntb.",
        b"cnumpy._core.multiarray\n_reconstruct\n(NNNtR(I1\n(I4000000000\ntcnumpy\ndtype\n(S'f8'\nI0\nI1\ntR"
        + state
        + b"I00\nS'12345678'\ntb.",
    ):
        path.write_bytes(data)
        with pytest.raises(UsageError, match=r"result\.pkl"):
            load_plain_pickle(path)


def test_a_result_of_many_references_is_told_without_writing_it_out(job: Any, tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(60):
        nested = [nested, nested]
    (tmp_path / "work" / "result.pkl").write_bytes(pickle.dumps({"acc": nested}))
    assert "a list" in str(job().result()[1])
