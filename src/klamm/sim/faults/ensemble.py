"""ZooKeeper servers that lag, end, restart, or lose each other."""

from typing import Final

from klamm.runtime.randomness import Dice
from klamm.sim.stage import Draw, Stage, later

_LAGS: Final = (0.01, 0.1, 1.0)
_LONGEST_S: Final = 8.0


def lag(stage: Stage, draw: Draw) -> None:
    """A server falls behind: what it answers is old."""
    index = draw("server", lambda dice: dice.randrange(len(stage.servers)))
    lag_s = draw("lag_s", lambda dice: dice.choice(_LAGS))
    dice = Dice(draw("jitter", lambda dice: dice.randrange(1 << 16)))
    stage.tell(f"zk-{index + 1} lags by up to {lag_s} s")
    stage.servers[index].lag_s = lambda: lag_s * dice.random()


def switch_server(stage: Stage, draw: Draw) -> None:
    """A server drops its clients while it lags, or another does: sessions move, to where less is known."""
    lag(stage, draw)
    index = draw("drops", lambda dice: dice.randrange(len(stage.servers)))
    stage.tell(f"zk-{index + 1} drops its clients")
    stage.servers[index].drop_all()


def restart_server(stage: Stage, draw: Draw) -> None:
    """One server ends and comes back; where it led, or is alone, nobody writes meanwhile."""
    _stop(stage, draw, 1)


def lose_quorum(stage: Stage, draw: Draw) -> None:
    """So many servers end that nobody is served."""
    _stop(stage, draw, (len(stage.servers) + 1) // 2)


def restart_ensemble(stage: Stage, draw: Draw) -> None:
    """All servers end, and come back together: sessions live on, connections and watches do not."""
    _stop(stage, draw, len(stage.servers))


def _stop(stage: Stage, draw: Draw, count: int) -> None:
    for_s = draw("for_s", lambda dice: dice.choice((0.1, 1.0, _LONGEST_S)) * dice.random())
    numbers = draw("servers", lambda dice: sorted(dice.sample(range(len(stage.servers)), count)))
    for number in numbers:
        server = stage.servers[number]
        if server.is_up:
            stage.tell(f"zk-{number + 1} ends, back after {for_s} s")
            server.stop()
            later(stage, for_s, server.start)


def cut_server_off(stage: Stage, draw: Draw) -> None:
    """A server and the others do not reach each other; clients reach them all."""
    number = draw("server", lambda dice: dice.randrange(len(stage.servers)))
    for_s = draw("for_s", lambda dice: _LONGEST_S * dice.random())
    server = stage.servers[number]
    if server.is_up and not server.is_cut_off:
        stage.tell(f"zk-{number + 1} is cut off from the others for {for_s} s")
        server.cut_off()
        later(stage, for_s, server.join_again)
