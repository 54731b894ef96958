"""Facts of every message: fields, types, versions. One module per family of APIs; notation in `klamm.wire.notation`."""

from typing import Final

from klamm.wire.tables import (
    cluster,
    configs,
    control,
    data,
    group_records,
    groups,
    log_dirs,
    security,
    topics,
    transaction_records,
    transactions,
)

TABLES: Final = tuple(
    m.TABLE for m in (data, cluster, control, groups, topics, configs, log_dirs, transactions, security)
)
RECORD_TABLES: Final = (group_records.TABLE, transaction_records.TABLE)
