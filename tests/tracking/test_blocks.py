from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from operant.tracking.format.blocks import (
    FILE_HEADER_SIZE,
    MIXED,
    POINTS,
    RECORDS,
    SEGMENT_FILE,
    decode_blocks,
    decode_records,
    encode_block,
    encode_file_header,
    encode_records,
    parse_file_header,
    scan_blocks,
)

payloads = st.lists(st.tuples(st.sampled_from([RECORDS, POINTS, MIXED]), st.binary(max_size=60)), max_size=6)


def file_of(blocks: list[tuple[int, bytes]]) -> bytes:
    return b"".join(encode_block(kind, number, payload) for number, (kind, payload) in enumerate(blocks))


@given(payloads)
def test_blocks_come_back_as_they_went_in(blocks: list[tuple[int, bytes]]) -> None:
    data = file_of(blocks)
    scan = scan_blocks(memoryview(data), base=64)
    assert [(block.kind, bytes(block.payload)) for block in scan.blocks] == blocks
    assert [block.sequence for block in scan.blocks] == list(range(len(blocks)))
    assert scan.end == 64 + len(data)
    assert not scan.gaps


@given(payloads, st.integers(0, 400))
def test_a_cut_file_ends_at_its_last_whole_block(blocks: list[tuple[int, bytes]], cut: int) -> None:
    data = file_of(blocks)[:cut]
    scan = scan_blocks(memoryview(data))
    whole = [(block.kind, bytes(block.payload)) for block in scan.blocks]
    assert whole == blocks[: len(whole)]
    assert scan.end <= len(data)
    assert scan_blocks(memoryview(data[scan.end :])).blocks == []


def test_every_flipped_byte_costs_at_most_its_own_block() -> None:
    blocks = [(RECORDS, encode_records([{"n": n}])) for n in range(4)]
    data = file_of(blocks)
    starts = [block.offset for block in scan_blocks(memoryview(data)).blocks] + [len(data)]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        found = [bytes(block.payload) for block in scan_blocks(memoryview(bytes(damaged))).blocks]
        hit = next(number for number in range(4) if starts[number] <= at < starts[number + 1])
        assert found == [payload for number, (_, payload) in enumerate(blocks) if number != hit]


OURS = ['{"a":1}', '{"a":1}\n{"b":2}']
NOT_OURS = ["", "7", "]", "[", "],[", "],5,[", '{"a":"', '"}', '{"a":[', "]}", "é", "[" * 5000]


@given(st.lists(st.sampled_from(OURS + NOT_OURS) | st.text(max_size=8), max_size=6))
def test_blocks_decoded_together_are_decoded_as_they_are_alone(texts: list[str]) -> None:
    """Bytes that no writer of ours makes may be read as other such bytes, but cost no block of ours its records."""
    payloads = [text.encode() for text in texts]
    together = decode_blocks(payloads)
    alone = [decode_records(payload) for payload in payloads]
    assert len(together) == len(alone)
    assert all(type(record) is dict for records in together for record in records)
    for text, found, expected in zip(texts, together, alone, strict=True):
        assert found == expected or text not in OURS


@given(st.binary(max_size=300))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    scan = scan_blocks(memoryview(data))
    assert 0 <= scan.end <= len(data)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, FILE_HEADER_SIZE - 1), st.integers(1, 255))
def test_file_header(number: int, writer: int, at: int, flip: int) -> None:
    head = encode_file_header(SEGMENT_FILE, number, writer)
    assert parse_file_header(head) == (SEGMENT_FILE, number, writer)
    damaged = bytearray(head)
    damaged[at] ^= flip
    assert parse_file_header(bytes(damaged)) is None


records = st.lists(
    st.dictionaries(
        st.text(),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.lists(st.text())),
    )
)


@settings(max_examples=200)
@given(records)
def test_records_come_back(found: list[dict[str, object]]) -> None:
    assert list(decode_records(encode_records(found))) == found
