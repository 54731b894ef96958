"""Controller epochs: who may act in one, and whom brokers follow."""

from klamm.sim.history import Elected, History, OrderReceived, StateWritten


def one_actor_per_epoch(history: History, event: OrderReceived) -> str | None:
    """Orders carry an epoch that their sender won."""
    sender, epoch = event.message.controller_id, event.message.controller_epoch
    winner = history.winners.get(epoch, (None, 0))[0]
    if sender != winner:
        return f"broker {sender} gives orders in epoch {epoch}, which broker {winner} won"
    return None


def epoch_counts_elections(history: History, event: Elected) -> str | None:
    """The controller epoch rises by one with each election, and by nothing else."""
    if event.epoch != event.before + 1 or event.broker is None:
        return f"controller epoch {event.before} became {event.epoch}, elected was {event.broker}"
    return None


def fenced_writes(history: History, event: StateWritten) -> str | None:
    """Only the session that won the newest epoch writes states, each time bound to the epoch's znode."""
    winner = history.winners.get(history.epoch)
    if winner is None or event.session != winner[1] or not event.checks_epoch:
        return f"{event.partition} written by session {event.session:x} while {winner} holds epoch {history.epoch}"
    if event.after.controller_epoch > history.epoch:
        return f"{event.partition} written with controller epoch {event.after.controller_epoch}, not yet won"
    return None


def followed_epochs_are_monotone(history: History, event: OrderReceived) -> str | None:
    """A broker follows no controller older than one it followed before."""
    highest = history.applied.get((event.broker, event.incarnation), 0)
    if not event.refusal and event.message.controller_epoch < highest:
        return f"broker {event.broker} follows epoch {event.message.controller_epoch} after {highest}"
    return None
