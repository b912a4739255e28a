"""Answers kept in memory: the most recently used ones, within their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.cache.key import cache_key
from copydesk.gateway.cache.memory import ENTRY_OVERHEAD, MemoryCache

KEYS = st.sampled_from("abcdefgh")


def test_what_has_not_been_asked_for_longest_goes_first() -> None:
    cache = MemoryCache(3 * (ENTRY_OVERHEAD + 2))
    for key in "abc":
        cache.put(key, b"x")
    assert cache.get("a") == b"x"
    cache.put("d", b"x")
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_what_is_larger_than_the_whole_is_not_kept_and_pushes_nothing_out() -> None:
    cache = MemoryCache(ENTRY_OVERHEAD + 10)
    cache.put("a", b"x")
    cache.put("b", b"x" * 100)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (b"x", None, 1)


@given(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2 * ENTRY_OVERHEAD))))
def test_it_never_takes_more_than_it_may_and_knows_what_it_takes(steps: list[tuple[str, bytes | None]]) -> None:
    cache, said = MemoryCache(4 * ENTRY_OVERHEAD), dict[str, bytes]()
    for key, value in steps:
        if value is None:
            assert cache.get(key) in (None, said.get(key))
        else:
            cache.put(key, value)
            said[key] = value
        kept = {key: value for key in said if (value := cache.get(key)) is not None}
        assert len(cache) == len(kept)
        assert cache.size == sum(len(key) + len(value) + ENTRY_OVERHEAD for key, value in kept.items())
        assert cache.size <= 4 * ENTRY_OVERHEAD


def test_another_model_another_sentence_another_key() -> None:
    keys = {cache_key(digest, payload) for digest in ("", "a", "b") for payload in (b"", b"a", b"b", b"\0a")}
    assert len(keys) == 12
    assert cache_key("a", b"b") == cache_key("a", b"b")
