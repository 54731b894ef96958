"""Facts of every message: fields, types, versions. One module per family of APIs; notation in `klamm.wire.notation`."""

from typing import Final

from klamm.wire.tables import (
    cluster,
    configs,
    control,
    coordinator_records,
    data,
    groups,
    security,
    topics,
    transactions,
)

TABLES: Final = tuple(m.TABLE for m in (data, cluster, control, groups, topics, configs, transactions, security))
RECORD_TABLES: Final = (coordinator_records.TABLE,)
