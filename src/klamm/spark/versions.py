"""What the driver sends to Python workers, which may run klamm from an archive of another version."""

import pickle

from klamm import __version__
from klamm.model.errors import KlammError


class OtherVersion(KlammError):
    """Driver and worker run different versions of klamm."""


class SameVersion:
    """Its pickles are only read by the version that wrote them: fields of another one may have other meanings."""

    def __getstate__(self) -> tuple[str, bytes]:
        """Return the version and the attributes."""
        return __version__, pickle.dumps(self.__dict__)

    def __setstate__(self, state: tuple[str, bytes]) -> None:
        """Take the attributes. Raises OtherVersion."""
        version, content = state
        if version != __version__:
            raise OtherVersion(
                f"The driver runs klamm {version}, this worker {__version__}. Make the archive for executors again "
                "with klamm spark package, or install the same version on every worker."
            )
        self.__dict__.update(pickle.loads(content))
