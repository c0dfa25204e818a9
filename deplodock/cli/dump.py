"""compile --dump: everything of one compilation in a folder, numbered in the order of the stages.

    00-program.py        the program, if it was text
    01-torch.txt ..      one file for each stage
    repro.py             compiles 01-torch.txt again, as it was done here, and checks it
"""
from __future__ import annotations

from pathlib import Path

from deplodock.cli import stages

REPRO = '''"""Compiles the program of this folder again, as `deplodock compile --dump` did, and checks it.

deplodock {version}, target {target} ({arch}), numerics {numerics}. Needs deplodock and nothing else of this folder.
"""
import sys

from deplodock.cli import execute

PROGRAM = """\\
{program}
"""

if __name__ == "__main__":
    import pathlib
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "program.torch.txt")
        path.write_text(PROGRAM)
        sys.exit(execute(["run", str(path), "--numerics", "{numerics}", *sys.argv[1:]]))
'''


def dump(folder: Path, compilation, last: str, cubins=()) -> None:
    """Writes the stages up to `last`. The folder is made if it is not there; files in it are overwritten."""
    from deplodock.version import __version__
    folder.mkdir(parents=True, exist_ok=True)
    text = compilation.captured.text
    if text is not None:
        (folder / "00-program.py").write_text(text.text.rstrip("\n") + "\n")
    for number, stage in enumerate(stages.STAGES[:stages.STAGES.index(last) + 1], 1):
        if stage in ("ptx", "sass") and not cubins:
            continue
        (folder / f"{number:02}-{stages.SUFFIX[stage]}").write_text(stages.text(compilation, stage, cubins) + "\n")
    program = stages.text(compilation, "torch").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    (folder / "repro.py").write_text(REPRO.format(
        version=__version__, target=compilation.target.name, arch=compilation.target.arch, numerics=compilation.numerics,
        program=program))
