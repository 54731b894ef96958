"""Clusters and topics as the settings and markers of the pytest plugin describe them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from klamm.model.errors import UsageError
from klamm.runtime.disk import PathText, RealDisk, path_text
from klamm.testing.cluster import Cluster

CLUSTER_OPTIONS: Final = ("brokers", "racks", "overrides", "network_faults")
TOPIC_OPTIONS: Final = ("partitions", "copies", "config")


class Marker(Protocol):
    """A marker of pytest."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of the marker."""
        ...

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments of the marker."""
        ...


@contextmanager
def cluster_from_ini(ini: Callable[[str], Any], directory: PathText) -> Iterator[Cluster]:
    """Start a cluster with the settings `klamm_…` of the ini file; its data is removed at the end.

    Raises UsageError.
    """
    brokers: str = ini("klamm_brokers")
    if not brokers.isdigit() or int(brokers) < 1:
        raise UsageError(f"klamm_brokers = {brokers}: write a number of nodes, at least 1.")
    options: dict[str, Any] = {
        "brokers": int(brokers),
        "racks": ini("klamm_racks"),
        "overrides": parse_overrides(ini("klamm_overrides")),
        "network_faults": ini("klamm_network_faults"),
    }
    with _running(directory, options) as cluster:
        yield cluster


@contextmanager
def cluster_from_marker(marker: Marker | None, directory: PathText) -> Iterator[Cluster]:
    """Start a cluster with the options of the marker `klamm`; its data is removed at the end. Raises UsageError."""
    with _running(directory, _options(marker, "klamm", CLUSTER_OPTIONS)) as cluster:
        yield cluster


def topic_options(marker: Marker | None) -> dict[str, Any]:
    """The options of `Cluster.create_topic` that the marker `klamm_topic` has. Raises UsageError."""
    return _options(marker, "klamm_topic", TOPIC_OPTIONS)


def parse_overrides(lines: Sequence[str]) -> dict[str, str]:
    """Parse configs from lines KEY=VALUE. Raises UsageError."""
    found = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"klamm_overrides: {line!r} is not KEY=VALUE, for example log.segment.bytes=1000000.")
        found[key.strip()] = value.strip()
    return found


def _options(marker: Marker | None, name: str, known: Sequence[str]) -> dict[str, Any]:
    """The options of a marker; empty without it. Raises UsageError for an unknown option."""
    if marker is None:
        return {}
    unknown = [*map(repr, marker.args), *(key for key in marker.kwargs if key not in known)]
    if unknown:
        raise UsageError(
            f"@pytest.mark.{name}: {unknown[0]} is not an option. Give only {', '.join(known)}, each as NAME=VALUE."
        )
    return dict(marker.kwargs)


@contextmanager
def _running(directory: PathText, options: Mapping[str, Any]) -> Iterator[Cluster]:
    """Start a cluster with its data in this directory; both are removed at the end."""
    try:
        with Cluster(directory, **options) as cluster:
            yield cluster
    finally:
        with suppress(FileNotFoundError):
            RealDisk().remove_tree(path_text(directory))
