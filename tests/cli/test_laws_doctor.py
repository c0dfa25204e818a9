"""deplodock laws and deplodock doctor."""
from __future__ import annotations

import json
import re


def test_every_law_is_listed_with_its_equation(deplodock):
    from deplodock.cli.laws import catalogue
    out = deplodock("laws").out
    for law in catalogue():
        assert re.search(rf"^  {law.name} +{law.tag} +{re.escape(law.equation)}", out, re.M)


def test_words_narrow_the_list(deplodock):
    found = json.loads(deplodock("laws", "reduction", "exact", "--json").out)["laws"]
    assert found and {(law["group"], law["tag"]) for law in found} == {("reduction", "exact")}
    (one,) = json.loads(deplodock("laws", "online_softmax", "--json").out)["laws"]
    assert one["file"] == "rules/reduction.py" and one["line"] > 1 and "Σ" in one["equation"]


def test_doctor_names_what_is_there_and_what_is_missing(deplodock, monkeypatch):
    ran = deplodock("doctor")
    assert ran.code == 0 and re.search(r"^ok +torch +\d", ran.out, re.M) and re.search(r"^ok +NVRTC +\d", ran.out, re.M)
    from importlib import metadata
    version = metadata.version

    def without_egglog(name):
        if name == "egglog":
            raise metadata.PackageNotFoundError(name)
        return version(name)
    monkeypatch.setattr(metadata, "version", without_egglog)
    ran = deplodock("doctor", "--json")
    checks = {c["name"]: c for c in json.loads(ran.out)["checks"]}
    assert ran.code == 1 and checks["egglog"]["state"] == "missing" and "no saturation" in checks["egglog"]["then"]
