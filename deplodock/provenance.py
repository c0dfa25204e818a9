"""Which law made each e-node: one law, one step, one comparison of the rows before and after.

Class ids change when classes are merged, so a row is known by its birth: rows are kept in the order they were made,
over the numbers that classes had at birth, and replayed against the present rows to find each one again. What a replay
does not reach is new, and was made by the law that has just run.
"""
from __future__ import annotations

from egglog.bindings import EGraph as Engine

from deplodock.encoding import BODIES, TENSORS
from deplodock.snapshot import Node, Rows

ENTERED = "program"
"""What brought the e-nodes of the program as it was entered."""
FUNCTIONS = ("At", "Gather", *TENSORS, *BODIES)
SORTS = ("Body", "Tensor", "Indices")


class Provenance:
    """The log of rows. `observe` after each step that changed the e-graph."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.log: list[tuple[str, tuple, int, str]] = []
        """Function, inputs (a class as its number at birth, anything else as its value), output's number, law."""
        self.classes = 0
        self.observe(ENTERED)

    def observe(self, law: str) -> None:
        """Notes the rows that are new since the last time as made by `law`."""
        rows, is_class = self._rows()
        now, birth, old = self._replay(rows, is_class)
        new = [key for key in rows if key not in old]
        while new:
            later = []
            for key in new:
                name, inputs = key
                if any(c and x not in birth for x, c in zip(inputs, is_class(name, inputs))):
                    later.append(key)
                    continue
                if rows[key] not in birth:
                    birth[rows[key]] = self.classes
                    self.classes += 1
                numbered = tuple(birth[x] if c else x for x, c in zip(inputs, is_class(name, inputs)))
                self.log.append((name, numbered, birth[rows[key]], law))
            if len(later) == len(new):
                return
            new = later

    def laws(self, rows: Rows) -> dict[tuple[int, Node], str]:
        """The law that made each node of a reading of the same e-graph, by class number and node."""
        present, is_class = self._rows()
        made = {}
        now: dict[int, object] = {}
        for name, inputs, output, law in self.log:
            key = name, tuple(now[x] if c else x for x, c in zip(inputs, is_class(name, inputs)))
            value = present[key]
            now.setdefault(output, value)
            if name not in ("At", "Gather"):
                made.setdefault((name, key[1]), law)
        return {(c, node): made.get(row, ENTERED) for c, node, row in rows.origins()}

    def _rows(self):
        """The present rows by function and inputs; and which inputs of a row are classes."""
        functions = self.engine.freeze().functions
        sorts = {name: tuple(s in SORTS for s in functions[name].input_sorts) for name in FUNCTIONS}
        rows = {}
        for name in FUNCTIONS:
            for r in functions[name].rows:
                inputs = tuple(r.inputs)
                if name == "Gather":
                    inputs = (inputs[0], *self.engine.value_to_vec(inputs[1]))
                rows[name, inputs] = r.output

        def is_class(name: str, inputs: tuple) -> tuple[bool, ...]:
            return (False, *(True,) * (len(inputs) - 1)) if name == "Gather" else sorts[name]
        return rows, is_class

    def _replay(self, rows, is_class):
        """What each class number is called now, the number of each present class, and the rows that are in the log."""
        now: dict[int, object] = {}
        birth: dict = {}
        old = set()
        for name, inputs, output, _ in self.log:
            key = name, tuple(now[x] if c else x for x, c in zip(inputs, is_class(name, inputs)))
            value = rows[key]
            old.add(key)
            if output not in now:
                now[output] = value
                birth.setdefault(value, output)
        return now, birth, old
