"""The namespaces of a campaign: who reaches whom, and what stays behind. A process of its own enters them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.campaign.network import packet_filter

from klamm.runtime.processes import ticks

PROBE = """
ip link add bridge type bridge
ip link add one type veth peer name two
ip link set one up
tc qdisc add dev one root handle 1: htb
tc class add dev one parent 1: classid 1:2 htb rate 1gbit
tc qdisc add dev one parent 1:2 bfifo limit 1
tc filter add dev one parent 1: protocol ip bpf bytecode "1,6 0 0 0" classid 1:2
nsenter --net=/proc/self/ns/net true
"""
"""One command for each thing that the campaigns need of a machine, in a network namespace that ends with it."""
SCRIPT = """
import json, socket, sys
from tests.campaign.network import CAMPAIGN, Network
from klamm.runtime.processes import spawn, ticks

SERVER = (
    "import socket, sys\\n"
    "with socket.create_server((sys.argv[1], 7000)) as server:\\n"
    "    while True: server.accept()[0].close()\\n"
)
CLIENT = "import socket, sys; socket.create_connection((sys.argv[1], 7000), 0.5)"
network = Network()
machines = {name: network.join(name) for name in ("one", "two")}
children = []

def run(at, code, to):
    child = spawn(at, [*machines[at].launcher, sys.executable, "-c", code, machines[to].host], sys.argv[1])
    children.append(child)
    return child

for name in machines:
    run(name, SERVER, name)

def reaches(at, to):
    return run(at, CLIENT, to).wait() == 0

def ends():
    return {"one to two": reaches("one", "two"), "two to one": reaches("two", "one")}

for name in machines:
    for _ in ticks(30):
        try:
            socket.create_connection((machines[name].host, 7000), 1).close()
            break
        except OSError:
            pass
found = {"before": ends()}
network.cut({"one"}, {"two"})
found["cut"] = ends()
socket.create_connection((machines["one"].host, 7000), 1).close()  # the campaign still reaches both
network.heal()
found["healed"] = ends()
network.cut({"one"}, {CAMPAIGN})
found["cut from clients"] = ends()
network.heal()
found["whole"] = network.is_whole
for child in children:
    child.kill()
print(json.dumps(found))
"""


def test_the_packet_filter_reads_the_source_address_and_a_random_number() -> None:
    assert packet_filter("10.77.0.2", 0.25) == (
        "6,32 0 0 26,21 0 3 172818434,32 0 0 4294963256,53 1 0 1073741824,6 0 0 4294967295,6 0 0 0"
    )


def test_cut_members_do_not_reach_each_other_and_others_do(tmp_path: Path) -> None:
    _skip_where_there_can_be_no_namespaces()
    before = _host_network()

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "log")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    both, neither = {"one to two": True, "two to one": True}, {"one to two": False, "two to one": False}
    expected = {"before": both, "cut": neither, "healed": both, "cut from clients": both, "whole": True}
    assert json.loads(done.stdout) == expected
    assert _host_network() == before


def test_without_rights_the_network_says_what_is_missing() -> None:
    _skip_where_there_can_be_no_namespaces()
    script = (
        "import os\n"
        "from tests.campaign.network import Network, NoNetwork\n"
        "os.setuid(65534)\n"
        "try: Network()\n"
        "except NoNetwork as error: print(error)"
    )

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert said.stdout.startswith("Cannot make a network namespace: Operation not permitted. Run as root"), said.stderr


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="clients end with the campaign by setpriv, of util-linux")
def test_clients_end_with_a_campaign_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.support.foreign_clients import ClientProcess\n"
        "say = 'import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)'\n"
        "client = ClientProcess(Path(sys.argv[1]), 'client', [sys.executable, '-c', say])\n"
        "while not client.output_path.read_text(): pass\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.returncode == -signal.SIGKILL, done.stderr
    process = Path("/proc", (tmp_path / "client.jsonl").read_text().strip())
    assert any(_has_ended(process) for _ in ticks(60))


def _has_ended(process: Path) -> bool:
    """Whether a process is gone, or waits for its parent to ask how it ended."""
    try:
        return "State:\tZ" in (process / "status").read_text()
    except OSError:
        return True


def _skip_where_there_can_be_no_namespaces() -> None:
    """Skip the test, and say why, where rights, programs or options of the kernel are missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux and root")
    if shutil.which("unshare") is None:
        pytest.skip("network namespaces need unshare, of util-linux")
    done = subprocess.run(
        ["unshare", "--net", "sh", "-exc", PROBE], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine cannot make a campaign's network: {done.stderr.strip()}")


def _host_network() -> str:
    """Devices, addresses and named namespaces of this machine, without the seconds for which DHCP lends an address."""
    commands = (["ip", "-o", "link"], ["ip", "-o", "-4", "address"], ["ip", "netns"])
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for command in commands]
    return re.sub(r"_lft \d+sec", "", "".join(run.stdout for run in runs))
