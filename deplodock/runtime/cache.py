"""A cache of one file per entry, named by the hash of what the entry was made from.

An entry is written to a temporary file and renamed, so a reader never sees half of one. It starts with a checksum of its
content: an entry that does not match is deleted with a warning, and counts as missing. The folder is private to the user
(mode 700, files 600). Above the size limit the entries that were used least recently go, down to three quarters of it.
"""
from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path

from deplodock.errors import CorruptCache

log = logging.getLogger("deplodock")

MAGIC = b"deplodock cache 1\n"
LIMIT = 1 << 30
"""Bytes. A kernel's entry is about 30 KB: room for some thirty thousand kernels."""
_CHECK_EVERY = 1 << 24
"""Bytes that one process writes between two looks at the folder's size (a look costs about a microsecond an entry)."""


def default_folder() -> Path:
    """DEPLODOCK_CACHE if it is set, else the platform's folder for the user's caches."""
    if given := os.environ.get("DEPLODOCK_CACHE"):
        return Path(given)
    import platformdirs
    return Path(platformdirs.user_cache_dir("deplodock", appauthor=False))


def digest(*parts: bytes | str) -> str:
    """A key: the hash of parts, told apart by their lengths. 32 hexadecimal digits."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()[:32]


_REFUSED: set[Path] = set()
"""Folders that could not be written to: each is told once."""


class Cache:
    """Entries of one kind, in one folder. Safe to use from several processes at once."""

    def __init__(self, kind: str, folder: Path | None = None, limit: int = LIMIT):
        self.folder = (folder or default_folder()) / kind
        self.limit = limit
        self._unchecked = _CHECK_EVERY

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The entry of a key; None if there is none. CorruptCache if a corrupt one cannot be deleted."""
        path = self.path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        head = len(MAGIC) + 32
        if data[:len(MAGIC)] == MAGIC and data[len(MAGIC):head] == hashlib.sha256(data[head:]).digest():
            return data[head:]
        log.warning("corrupt cache entry %s: its checksum does not match its content; it is deleted and made again", path)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CorruptCache(path=path, reason=f"it cannot be deleted ({error.strerror})") from error
        return None

    def put(self, key: str, content: bytes) -> None:
        """Stores an entry. A folder that cannot be written to costs a warning, not the compilation."""
        path = self.path(key)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(self.folder, 0o700)
            handle, temporary = tempfile.mkstemp(dir=path.parent)     # mode 600
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(MAGIC + hashlib.sha256(content).digest() + content)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            if self.folder not in _REFUSED:
                _REFUSED.add(self.folder)
                log.warning("the cache %s cannot be written to: %s", self.folder, error.strerror)
            return
        self._unchecked += len(content)
        if self._unchecked >= _CHECK_EVERY:
            self._unchecked = 0
            self.prune()

    def entries(self) -> list[Path]:
        return [path for path in self.folder.glob("??/*") if path.is_file()]

    def prune(self) -> int:
        """Deletes the least recently used entries if the folder is above its limit. Returns how many."""
        found = []
        for path in self.entries():
            try:
                stat = path.stat()
            except FileNotFoundError:        # another process deleted it
                continue
            found.append((stat.st_mtime_ns, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return 0
        deleted = 0
        for _, size, path in sorted(found):
            if total <= self.limit * 3 // 4:
                break
            path.unlink(missing_ok=True)
            total -= size
            deleted += 1
        return deleted
