"""`python -m tests.scenarios.record`: record all transcripts; `git diff` then shows what changed."""

from pathlib import Path

from tests.scenarios.scenarios import SCENARIOS
from tests.scenarios.transcript import transcript

from klamm.sim.campaign import silence_logging

TRANSCRIPTS = Path(__file__).parent / "transcripts"


def path_of(name: str) -> Path:
    return TRANSCRIPTS / f"{name.replace(' ', '-')}.txt"


def main() -> None:
    silence_logging()
    TRANSCRIPTS.mkdir(exist_ok=True)
    for old in TRANSCRIPTS.glob("*.txt"):
        old.unlink()
    for name, scenario in SCENARIOS.items():
        path = path_of(name)
        path.write_text(transcript(name, scenario))
        print(path)


if __name__ == "__main__":
    main()
