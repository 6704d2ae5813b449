"""contracts.keys.key_group_of against Flink's own code: PyFlink wraps each key in a Row, and that is what is hashed."""

from __future__ import annotations

import json
import subprocess
import sys

from contracts.keys import MAX_PARALLELISM, bucket_shard, hot_shard, key_group_of

KEYS = [
    *(bucket_shard(feed, bucket) for feed in ("main", "crypto", "börse") for bucket in range(16)),
    *(hot_shard("main", "BTC-USD", 4, index) for index in range(4)),
    "", "a", "𝄞 outside the first plane", "x" * 1_000,
]  # fmt: skip

# A process of its own: PyFlink leaves its Java gateway to the end of the process.
ASK_FLINK = """
import json, sys
from pyflink.java_gateway import get_gateway
jvm = get_gateway().jvm
def key_group(key):
    row = jvm.org.apache.flink.types.Row(1)
    row.setField(0, key)
    return jvm.org.apache.flink.runtime.state.KeyGroupRangeAssignment.assignToKeyGroup(row, int(sys.argv[1]))
print(json.dumps([key_group(key) for key in json.load(sys.stdin)]))
"""


def test_key_groups_are_flink_s() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", ASK_FLINK, str(MAX_PARALLELISM)],
        input=json.dumps(KEYS), capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert json.loads(answer.stdout.splitlines()[-1]) == [key_group_of(key) for key in KEYS]
