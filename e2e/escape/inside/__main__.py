"""Owns the trial of every attempt inside a sandbox: `python3 -m inside FACTS` prints a JSON row for each."""

import json
import os
import sys

from . import ATTEMPTS
from .kit import FACTS, perform


def main():
    """Tries everything and prints a row for each."""
    here = {int(name) for name in os.listdir("/proc/self/fd")}
    descriptors = []
    for fd in here - {0, 1, 2}:
        try:
            descriptors.append(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue
    FACTS.update(json.loads(sys.argv[1]), descriptors=descriptors)
    for name in ATTEMPTS:
        print(json.dumps({"name": name, **perform(name)}), flush=True)


main()
