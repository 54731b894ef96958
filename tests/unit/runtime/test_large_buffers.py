"""That a freed large buffer's pages stay with the process, seen from outside it."""

from tests.support.page_faults import PAGES, faults_after, needs_glibc


@needs_glibc
def test_released_large_buffers_are_reused() -> None:
    program = "from klamm.runtime.memory import keep_large_buffers\nassert keep_large_buffers()"

    assert faults_after(program) < PAGES // 4
