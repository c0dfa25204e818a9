"""The cache of compiled kernels: private, atomic, checked, limited."""
from __future__ import annotations

import logging
import os

import pytest

from deplodock.errors import CorruptCache
from deplodock.runtime.cache import Cache, default_folder, digest


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache("cubin", tmp_path)


def test_an_entry_comes_back_and_a_missing_one_is_none(cache):
    assert cache.get(digest("a")) is None
    cache.put(digest("a"), b"content")
    assert cache.get(digest("a")) == b"content"


def test_keys_tell_parts_apart_by_their_borders():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab", "c") == digest(b"ab", b"c")


def test_folder_and_files_are_private(cache):
    cache.put(digest("a"), b"content")
    path = cache.path(digest("a"))
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(cache.folder).st_mode & 0o777 == 0o700
    assert os.stat(path.parent).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1],
    lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    lambda data: b"",
    lambda data: b"something else entirely",
    lambda data: data + b"\0",
], ids=["truncated", "bit flipped", "empty", "foreign", "longer"])
def test_a_corrupt_entry_is_deleted_with_a_warning(cache, caplog, damage):
    key = digest("a")
    cache.put(key, b"content")
    path = cache.path(key)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, "deplodock"):
        assert cache.get(key) is None
    assert [r.getMessage() for r in caplog.records] == [
        f"corrupt cache entry {path}: its checksum does not match its content; it is deleted and made again"]
    assert not path.exists()


def test_a_corrupt_entry_that_cannot_be_deleted_is_an_error(cache, monkeypatch):
    key = digest("a")
    cache.put(key, b"content")
    cache.path(key).write_bytes(b"broken")
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(CorruptCache, match="it cannot be deleted \\(Permission denied\\)"):
        cache.get(key)


def test_a_failed_write_leaves_no_file(cache, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    cache.put(digest("a"), b"content")
    assert cache.entries() == []


def test_the_least_recently_used_entries_go_first(tmp_path):
    cache = Cache("cubin", tmp_path, limit=1000)
    keys = [digest(str(n)) for n in range(8)]
    for n, key in enumerate(keys):
        cache.put(key, bytes(200))
        os.utime(cache.path(key), (n, n))
    cache.get(keys[0])
    assert cache.prune() > 0
    assert cache.get(keys[0]) is not None and cache.get(keys[1]) is None and cache.get(keys[7]) is not None
    assert sum(p.stat().st_size for p in cache.entries()) <= 750


def test_the_environment_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path / "here"))
    assert default_folder() == tmp_path / "here"


def test_a_folder_that_cannot_be_written_to_is_told_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DEPLODOCK_CACHE", str(tmp_path / "file"))
    for key in ("1" * 64, "2" * 64):
        Cache("program").put(key, b"content")
        assert Cache("program").get(key) is None
    assert len(caplog.records) == 1 and "Not a directory" in caplog.text
